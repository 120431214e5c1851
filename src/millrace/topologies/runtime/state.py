"""The state of a stateful bolt's task: a mapping whose changes last when the worker commits."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

_DELETED = object()


class TaskState(MutableMapping[Any, Any]):
    """Changes since the last commit lie over what is committed, so that an abort can drop them.

    Set a value again after changing it in place: only what is set is kept. Owned by the worker's loop.
    """

    __slots__ = ("_changes", "_committed")

    def __init__(self) -> None:
        self._committed: dict[Any, Any] = {}
        self._changes: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        value = self._changes.get(key, self)
        if value is self:
            return self._committed[key]
        if value is _DELETED:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._changes.get(key, self)
        if value is self:
            return self._committed.get(key, default)
        return default if value is _DELETED else value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._changes[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._changes[key] = _DELETED

    def __contains__(self, key: object) -> bool:
        value = self._changes.get(key, self)
        return key in self._committed if value is self else value is not _DELETED

    def __iter__(self) -> Iterator[Any]:
        yield from (key for key in self._committed if self._changes.get(key, self) is not _DELETED)
        yield from (
            key
            for key, value in self._changes.items()
            if value is not _DELETED and key not in self._committed
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # The worker's side

    def changes(self) -> list[tuple[Any, Any, bool]]:
        """The changes since the last commit: key, value, and whether the key was deleted."""
        return [
            (key, None if value is _DELETED else value, value is _DELETED)
            for key, value in self._changes.items()
        ]

    def commit(self) -> None:
        for key, value in self._changes.items():
            if value is _DELETED:
                self._committed.pop(key, None)
            else:
                self._committed[key] = value
        self._changes.clear()

    def abort(self) -> None:
        self._changes.clear()

    def restore(self, key: Any, value: Any, *, deleted: bool) -> None:
        """Take up a change of the changelog."""
        if deleted:
            self._committed.pop(key, None)
        else:
            self._committed[key] = value
