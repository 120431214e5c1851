"""The state of a stateful bolt's task: a mapping whose changes last when the worker commits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any

from millrace.topologies.runtime.store import DELETED, MemoryStore, Store

_MISSING = object()
# Values of other types may be changed in place: the bolt gets a copy.
_FIXED = frozenset({int, str, float, bool, bytes, type(None)})


class TaskState(MutableMapping[Any, Any]):
    """Changes since the last commit lie over what is committed, so that an abort can drop them.

    Set a value again after changing it in place: only what is set is kept. Owned by the worker's loop.
    """

    __slots__ = ("_changes", "_committed")

    def __init__(self, store: Store | None = None) -> None:
        self._committed: Store = MemoryStore() if store is None else store
        self._changes: dict[Any, Any] = {}

    def _find(self, key: Any) -> Any:
        value = self._changes.get(key, _MISSING)
        if value is not _MISSING:
            return value
        value = self._committed.get(key, DELETED)
        return value if type(value) in _FIXED or value is DELETED else copy.deepcopy(value)

    def __getitem__(self, key: Any) -> Any:
        value = self._find(key)
        if value is DELETED:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._find(key)
        return default if value is DELETED else value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._changes[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        if key in self._committed:
            self._changes[key] = DELETED
        else:
            # It came and went between two commits: the changelog need not know.
            del self._changes[key]

    def __contains__(self, key: object) -> bool:
        value = self._changes.get(key, _MISSING)
        return key in self._committed if value is _MISSING else value is not DELETED

    def __iter__(self) -> Iterator[Any]:
        yield from (key for key in self._committed if self._changes.get(key) is not DELETED)
        yield from (
            key
            for key, value in list(self._changes.items())
            if value is not DELETED and key not in self._committed
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # The worker's side

    def changes(self) -> list[tuple[Any, Any, bool]]:
        """The changes since the last commit: key, value, and whether the key was deleted."""
        return [
            (key, None if value is DELETED else value, value is DELETED)
            for key, value in self._changes.items()
        ]

    def commit(self, offset: int | None = None) -> None:
        """Keep the changes; `offset` is the position of the changelog after them."""
        if self._changes or offset is not None:
            self._committed.write(self._changes, offset)
            self._changes.clear()

    def abort(self) -> None:
        self._changes.clear()

    def restore(self, key: Any, value: Any, *, deleted: bool) -> None:
        """Take up a change of the changelog; `commit` keeps it."""
        self._changes[key] = DELETED if deleted else value

    @property
    def offset(self) -> int:
        """The position of the changelog that the committed state is at."""
        return self._committed.offset

    def clear(self) -> None:
        """Forget everything: the local copy does not fit its changelog."""
        self._changes.clear()
        self._committed.clear()

    def close(self) -> None:
        self._committed.close()
