"""Declarations of states: the kind, the store and where it can be used from.

Users import these functions as `millrace.trident.state`. A declaration opens nothing, and can be
sent to other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from millrace.trident.errors import StateError
from millrace.trident.state.map_state import KINDS, Kind, MapState
from millrace.trident.state.store import Store

CACHED_ROWS = 10_000


@dataclass(frozen=True)
class StateSpec:
    """A state that a topology updates or queries."""

    name: str
    store: Callable[[str], Store]
    """Opens the store, given the address of the log."""
    kind: Kind = "opaque"
    runs_in: Literal["driver", "tasks"] = "driver"
    """Whether the driver or Spark's tasks read and write it."""
    is_outside: bool = True
    """Whether other processes see it."""
    is_local: bool = False
    """Whether it is bound to this machine."""
    is_relative: bool = False
    """Whether its place depends on the working directory of the process."""
    cache: int = CACHED_ROWS
    """The number of rows that the driver keeps in memory."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StateError(
                f"{self.name}: a state cannot be {self.kind!r}; choose one of {', '.join(KINDS)}"
            )

    def open(self, bootstrap: str, *, is_writer: bool = False) -> MapState:
        """Open the state. Only its single writer may keep rows in memory."""
        cache = self.cache if is_writer and self.runs_in == "driver" else 0
        return MapState(self.name, self.kind, self.store(bootstrap), cache=cache)


def memory(name: str, *, kind: Kind = "opaque") -> StateSpec:
    """A state in the memory of the driver, which is lost when it ends. For tests and experiments."""
    return StateSpec(name, partial(_open_memory, name), kind, is_outside=False, cache=0)


def sqlite(path: str | Path, table: str, *, kind: Kind = "opaque", cache: int = CACHED_ROWS) -> StateSpec:
    """A state in a table of an SQLite file on this machine."""
    location = str(Path(path).expanduser().absolute())
    return StateSpec(
        table,
        partial(_open_sqlite, location, table),
        kind,
        is_local=True,
        is_relative=not Path(path).expanduser().is_absolute(),
        cache=cache,
    )


def postgresql(url: str, table: str, *, kind: Kind = "opaque") -> StateSpec:
    """A state in a table of PostgreSQL: `postgresql://user@host/database`."""
    return StateSpec(table, partial(_open_postgresql, url, table), kind, runs_in="tasks")


def redis(url: str, name: str, *, kind: Kind = "opaque") -> StateSpec:
    """A state in a hash of Redis: `redis://host:6379/0`."""
    return StateSpec(name, partial(_open_redis, url, name), kind, runs_in="tasks")


def log(topic: str, *, kind: Kind = "opaque") -> StateSpec:
    """A state in a compacted topic of the log. Its rows must fit in the driver's memory."""
    return StateSpec(topic, partial(_open_log, topic), kind, cache=0)


def custom(
    name: str,
    store: Callable[[], Store],
    *,
    kind: Kind = "opaque",
    runs_in: Literal["driver", "tasks"] = "driver",
    is_outside: bool = True,
    cache: int = 0,
) -> StateSpec:
    """A state in a store of your own: see `millrace.trident.state.Store`."""
    return StateSpec(name, partial(_open_custom, store), kind, runs_in, is_outside, cache=cache)


def _open_memory(name: str, _bootstrap: str) -> Store:
    from millrace.trident.state.process_memory import Memory

    return Memory(name)


def _open_sqlite(path: str, table: str, _bootstrap: str) -> Store:
    from millrace.trident.state.sqlite_table import SqliteTable

    return SqliteTable(path, table)


def _open_postgresql(url: str, table: str, _bootstrap: str) -> Store:
    from millrace.trident.state.sql_table import SqlTable

    return SqlTable(url, table)


def _open_redis(url: str, name: str, _bootstrap: str) -> Store:
    from millrace.trident.state.redis_hash import RedisHash

    return RedisHash(url, name)


def _open_log(topic: str, bootstrap: str) -> Store:
    from millrace.trident.state.compacted_topic import CompactedTopic

    return CompactedTopic(topic, bootstrap)


def _open_custom(store: Callable[[], Store], _bootstrap: str) -> Store:
    return store()
