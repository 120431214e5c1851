"""The seam between a broker and the ensemble that coordinates its cluster: a tree of small nodes.

ZooKeeper is the real one (`zookeeper.py`); tests have one in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1


class Stored(NamedTuple):
    """A node: its content, how often that was set, and the transaction that created the node."""

    data: bytes
    version: int
    created: int
    owner: int
    """The session that an ephemeral node ends with; 0 for others."""


class Check(NamedTuple):
    """Let the whole commit fail unless a node has this version."""

    path: str
    version: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str


Operation: TypeAlias = Check | Create | Set | Delete


class Conflict(Exception):
    """A commit had no effect: a node exists, is missing, or has another version than expected."""


class Unavailable(Exception):
    """The ensemble does not answer. A commit may have had its effect all the same."""


class Coordination(Protocol):
    """A session at the ensemble. Owned by the broker loop; not thread-safe."""

    on_change: Callable[[], object]
    """Called when the children of a watched node, or its content, may have changed, and on a new session."""

    @property
    def session(self) -> int:
        """The present session; another number after the ensemble gave the one before up."""

    @property
    def contact(self) -> float:
        """The monotonic time at which the last answered request was sent: the session is that fresh."""

    @property
    def timeout_seconds(self) -> float:
        """The silence after which the ensemble gives a session up."""

    async def connect(self) -> None:
        """Begin a session. Raises Unavailable."""

    def watch(self) -> None:
        """Call `on_change` when brokers come and go, and when the controller changes."""

    async def get(self, path: str) -> Stored | None:
        """A node; None if there is none."""

    async def children(self, path: str) -> list[str]:
        """The names below a node; none if there is no such node."""

    async def get_all(self, paths: Sequence[str]) -> list[Stored | None]:
        """Several nodes, asked for at the same time."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Make all changes or none. Raises Conflict."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes are gone at once."""
