"""Stores of committed state: in memory, or in a file that outgrows memory and outlives the worker."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.frames import Values

DELETED = object()
"""The value of a key that is deleted."""

# Decoded values that a file's store keeps in memory.
CACHED_KEYS = 50_000
# A changelog keeps the marks of deleted keys for a day: a copy that is older may have missed some.
STALE_SECONDS = 12 * 3600.0
_MISSING = object()

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -16384;
CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY, owner TEXT, offset INTEGER, written REAL);
"""


class Store(Protocol):
    """Committed state. Owned by one thread."""

    def get(self, key: Any, default: Any = None, /) -> Any: ...

    def __contains__(self, key: object, /) -> bool: ...

    def __iter__(self) -> Iterator[Any]: ...

    def write(self, changes: Mapping[Any, Any], offset: int | None) -> None:
        """Apply changes at once; `offset` is the position of the changelog after them, if it is known."""

    @property
    def offset(self) -> int:
        """The position of the changelog that the store is at, 0 if it is empty."""

    def clear(self) -> None:
        """Forget everything: the local copy does not fit its changelog."""

    def close(self) -> None: ...


class MemoryStore(dict[Any, Any]):
    """State in memory: restored from its changelog at every start."""

    offset = 0

    def write(self, changes: Mapping[Any, Any], offset: int | None) -> None:
        for key, value in changes.items():
            if value is DELETED:
                self.pop(key, None)
            else:
                self[key] = value

    def close(self) -> None:
        """Nothing is kept."""


class DiskStore:
    """State in a SQLite file. Changes and the changelog's offset are written in one transaction.

    A worker that starts again on the same machine reads only the rest of the changelog. A predecessor that
    still lives cannot write any more: the file belongs to the store that was opened last.
    """

    def __init__(self, path: Path, values: Values) -> None:
        self._values = values
        self._cache: dict[Any, Any] = {}
        self._owner = secrets.token_hex(8)
        # Tasks with threads of their own use it in turns with the loop, never at the same time.
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        self._file.executescript(_SCHEMA)
        self._file.execute("BEGIN IMMEDIATE")
        found = self._file.execute("SELECT offset, written FROM position").fetchone()
        if found is not None and time.time() - found[1] > STALE_SECONDS:
            self._file.execute("DELETE FROM state")
            found = None
        self._offset = 0 if found is None else int(found[0])
        self._file.execute(
            "INSERT OR REPLACE INTO position VALUES (0, ?, ?, ?)", (self._owner, self._offset, time.time())
        )
        self._file.execute("COMMIT")

    @property
    def offset(self) -> int:
        return self._offset

    def clear(self) -> None:
        self._cache.clear()
        self._file.execute("DELETE FROM state")
        self._file.execute("UPDATE position SET offset = 0")
        self._offset = 0

    def get(self, key: Any, default: Any = None, /) -> Any:
        value = self._cache.get(key, _MISSING)
        if value is _MISSING:
            value = self._read(key)
            self._remember(key, value)
        return default if value is DELETED else value

    def _read(self, key: Any) -> Any:
        row = self._file.execute(
            "SELECT value FROM state WHERE key = ?", (self._values.encode(key),)
        ).fetchone()
        return DELETED if row is None else self._values.decode(row[0])

    def _remember(self, key: Any, value: Any) -> None:
        if len(self._cache) >= CACHED_KEYS:
            for old in list(islice(self._cache, CACHED_KEYS // 2)):
                del self._cache[old]
        self._cache[key] = value

    def __contains__(self, key: object, /) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __iter__(self) -> Iterator[Any]:
        last = b""
        # In pieces, so that the state may change between them.
        while rows := self._file.execute(
            "SELECT key FROM state WHERE key > ? ORDER BY key LIMIT 1000", (last,)
        ).fetchall():
            for (key,) in rows:
                yield self._values.decode_key(key)
            last = rows[-1][0]

    def write(self, changes: Mapping[Any, Any], offset: int | None) -> None:
        encode = self._values.encode
        changed = [(encode(key), encode(value)) for key, value in changes.items() if value is not DELETED]
        deleted = [(encode(key),) for key, value in changes.items() if value is DELETED]
        position = self._offset if offset is None else offset
        self._file.execute("BEGIN IMMEDIATE")
        try:
            owned = self._file.execute(
                "UPDATE position SET offset = ?, written = ? WHERE owner = ?",
                (position, time.time(), self._owner),
            ).rowcount
            if not owned:
                raise TopologyError("another worker has taken the local state over; this one ends")
            self._file.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", changed)
            self._file.executemany("DELETE FROM state WHERE key = ?", deleted)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        self._offset = position
        for key, value in changes.items():
            self._remember(key, value)

    def close(self) -> None:
        self._file.close()


def state_directory(chosen: str | None) -> Path:
    """The directory for state on this machine, which belongs to this user alone."""
    uid = os.getuid()
    base = Path("/var/tmp") if Path("/var/tmp").is_dir() else Path(tempfile.gettempdir())
    path = Path(chosen) if chosen else base / f"millrace-state-{uid}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != uid or stat.S_IMODE(found.st_mode) & 0o022:
        raise TopologyError(
            f"others may write to {path}, the directory for local state; "
            f"chmod 700 it, or set topology.state.dir to another one"
        )
    return path
