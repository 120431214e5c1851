"""An ensemble in memory that the brokers of one process share: ZooKeeper's tree, sessions and commits."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence

from millrace.cluster.coordination import (
    ANY_VERSION,
    Check,
    Conflict,
    Create,
    Delete,
    Operation,
    Set,
    Stored,
    Unavailable,
)


class MemoryEnsemble:
    """The tree. Brokers on several threads use it, each through a session of its own."""

    def __init__(self, timeout_seconds: float = 10.0) -> None:
        self.timeout_seconds = timeout_seconds
        self.lock = threading.RLock()
        self.nodes: dict[str, Stored] = {"/": Stored(b"", 0, 0, 0)}
        self._zxids = itertools.count(1)
        self._sessions = itertools.count(1)
        self.members: list[MemorySession] = []

    def new_session(self) -> int:
        return next(self._sessions)

    def commit(self, operations: Sequence[Operation], session: int) -> None:
        with self.lock:
            nodes, zxid = dict(self.nodes), next(self._zxids)
            for operation in operations:
                _apply(nodes, operation, session, zxid)
            self.nodes = nodes
        self.tell()

    def expire(self, session: int) -> None:
        """End a session: its ephemeral nodes are gone."""
        with self.lock:
            self.nodes = {path: node for path, node in self.nodes.items() if node.owner != session}
        self.tell()

    def tell(self) -> None:
        for member in list(self.members):
            member.hand_over()


def _apply(nodes: dict[str, Stored], operation: Operation, session: int, zxid: int) -> None:
    path = operation.path
    node = nodes.get(path)
    if isinstance(operation, Create):
        if node is not None or (path.rpartition("/")[0] or "/") not in nodes:
            raise Conflict(f"{path}: exists, or has no parent")
        nodes[path] = Stored(operation.data, 0, zxid, session if operation.ephemeral else 0)
        return
    if node is None:
        raise Conflict(f"{path}: missing")
    if isinstance(operation, Delete):
        if any(other.startswith(f"{path}/") for other in nodes):
            raise Conflict(f"{path}: not empty")
        del nodes[path]
        return
    if operation.version not in (ANY_VERSION, node.version):
        raise Conflict(f"{path}: has version {node.version}, not {operation.version}")
    if isinstance(operation, Set):
        nodes[path] = node._replace(data=operation.data, version=node.version + 1)
    else:
        assert isinstance(operation, Check)


class MemorySession:
    """One broker's session. `is_cut` stands for a network that does not reach the ensemble."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.on_change: Callable[[], object] = lambda: None
        self.is_cut = False
        self._ensemble = ensemble
        self._session = 0
        self._contact = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._pinging: asyncio.Task[None] | None = None

    @property
    def session(self) -> int:
        return self._session

    @property
    def contact(self) -> float:
        return self._contact

    @property
    def timeout_seconds(self) -> float:
        return self._ensemble.timeout_seconds

    async def connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = self._ensemble.new_session()
        self._contact = time.monotonic()
        self._ensemble.members.append(self)
        self._pinging = self._loop.create_task(self._ping())

    def watch(self) -> None:
        """Every change is reported."""

    def hand_over(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._notify)
        except RuntimeError:
            # The loop is closed: the broker was killed.
            return

    def _notify(self) -> None:
        self.on_change()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self.timeout_seconds / 4)
            if not self.is_cut:
                self._check()
            elif time.monotonic() - self._contact > self.timeout_seconds:
                self._ensemble.expire(self._session)

    def _check(self) -> None:
        if self.is_cut:
            raise Unavailable("the ensemble cannot be reached")
        now = time.monotonic()
        if now - self._contact > self.timeout_seconds:
            # The ensemble has given the session up meanwhile.
            self._ensemble.expire(self._session)
            self._session = self._ensemble.new_session()
            self._notify()
        self._contact = now

    async def get(self, path: str) -> Stored | None:
        self._check()
        return self._ensemble.nodes.get(path)

    async def get_all(self, paths: Sequence[str]) -> list[Stored | None]:
        self._check()
        nodes = self._ensemble.nodes
        return [nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        self._check()
        prefix = f"{path}/"
        return [
            name[len(prefix) :]
            for name in self._ensemble.nodes
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._check()
        self._ensemble.commit(operations, self._session)

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self in self._ensemble.members:
            self._ensemble.members.remove(self)
        self._ensemble.expire(self._session)
