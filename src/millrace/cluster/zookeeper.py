"""ZooKeeper through kazoo, on the broker's event loop.

kazoo calls back on threads of its own, which only hand over to the loop. It begins a new session by itself
when the ensemble has given the old one up, and says so only once it is connected again. So `contact`, the
sending time of the last request that was answered, tells whether the present session is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from millrace.cluster.coordination import (
    Check,
    Conflict,
    Create,
    Delete,
    Operation,
    Set,
    Stored,
    Unavailable,
)
from millrace.cluster.znodes import BROKERS, CONTROLLER

logger = logging.getLogger(__name__)

PINGS_PER_TIMEOUT = 4
REQUESTS_AT_ONCE = 300


class ZooKeeper:
    """A session at a ZooKeeper ensemble. Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_seconds: float,
        connection_timeout_seconds: float,
        auth: str | None = None,
        tls: dict[str, Any] | None = None,
    ) -> None:
        """`hosts` is Kafka's zookeeper.connect, a chroot included; `auth` is `user:password`."""
        self.on_change: Callable[[], object] = lambda: None
        self._hosts = hosts
        self._session_timeout_seconds = session_timeout_seconds
        self._connection_timeout_seconds = connection_timeout_seconds
        self._auth = auth
        self._tls = tls or {}
        self._contact = 0.0
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop
        self._pinging: asyncio.Task[None] | None = None

    @property
    def session(self) -> int:
        return int(self._client._session_id or 0)

    @property
    def contact(self) -> float:
        return self._contact

    @property
    def timeout_seconds(self) -> float:
        # As the server has granted it.
        return float(self._client._session_timeout) / 1000 if self._client else self._session_timeout_seconds

    async def connect(self) -> None:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError

        self._loop = asyncio.get_running_loop()
        logging.getLogger("kazoo").setLevel(logging.WARNING)
        self._client = KazooClient(
            self._hosts,
            timeout=self._session_timeout_seconds,
            auth_data=[("digest", self._auth)] if self._auth else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
            **self._tls,
        )
        self._client.add_listener(self._state_changed)
        try:
            await asyncio.to_thread(self._client.start, self._connection_timeout_seconds)
        except (KazooTimeoutError, OSError) as error:
            await asyncio.to_thread(self._client.stop)
            raise Unavailable(f"no ZooKeeper at {self._hosts}") from error
        if self._client.chroot:
            await self._result(self._client.ensure_path_async("/"))
        self._contact = time.monotonic()
        self._pinging = self._loop.create_task(self._ping())

    def watch(self) -> None:
        """Call `on_change` when brokers come and go, and when the controller changes."""
        self._client.ChildrenWatch(BROKERS, lambda _: self._hand_over())
        self._client.DataWatch(CONTROLLER, lambda data, stat: self._hand_over())

    def _state_changed(self, state: str) -> None:
        """On kazoo's connection thread, where a request would wait for itself."""
        self._hand_over()

    def _hand_over(self) -> None:
        # A closed loop is that of a broker that has stopped.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self.on_change()

    async def _ping(self) -> None:
        """Keep `contact` fresh while nothing else is asked."""
        while True:
            await asyncio.sleep(self.timeout_seconds / PINGS_PER_TIMEOUT)
            try:
                await self.get(CONTROLLER)
            except Unavailable:
                logger.debug("ZooKeeper does not answer")

    # Requests

    async def _result(self, result: Any) -> Any:
        """Wait for a kazoo result on the loop."""
        from kazoo.exceptions import (
            ConnectionClosedError,
            ConnectionLoss,
            OperationTimeoutError,
            SessionExpiredError,
        )

        sent = time.monotonic()
        done: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        result.rawlink(lambda _: self._loop.call_soon_threadsafe(wake))
        await done
        try:
            value = result.get(block=False)
        except (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError) as error:
            raise Unavailable(f"ZooKeeper at {self._hosts} does not answer") from error
        self._contact = max(self._contact, sent)
        return value

    async def get(self, path: str) -> Stored | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = await self._result(self._client.get_async(path))
        except NoNodeError:
            return None
        return Stored(data, stat.version, stat.czxid, stat.ephemeralOwner)

    async def get_all(self, paths: Sequence[str]) -> list[Stored | None]:
        found: list[Stored | None] = []
        # Not all at once: pings would wait behind them, and the session look older than it is.
        for place in range(0, len(paths), REQUESTS_AT_ONCE):
            found += await asyncio.gather(*map(self.get, paths[place : place + REQUESTS_AT_ONCE]))
        return found

    async def children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return list(await self._result(self._client.get_children_async(path)))
        except NoNodeError:
            return []

    async def commit(self, operations: Sequence[Operation]) -> None:
        transaction = self._client.transaction()
        for operation in operations:
            if isinstance(operation, Check):
                transaction.check(operation.path, operation.version)
            elif isinstance(operation, Create):
                transaction.create(operation.path, operation.data, ephemeral=operation.ephemeral)
            elif isinstance(operation, Set):
                transaction.set_data(operation.path, operation.data, operation.version)
            elif isinstance(operation, Delete):
                transaction.delete(operation.path)
        # Failures are returned, not raised.
        failed = [
            (operation, outcome)
            for operation, outcome in zip(
                operations, await self._result(transaction.commit_async()), strict=True
            )
            if isinstance(outcome, Exception)
        ]
        for operation, outcome in failed:
            if type(outcome).__name__ not in ("RuntimeInconsistency", "RolledBackError"):
                raise Conflict(f"{operation.path}: {type(outcome).__name__}") from outcome
        if failed:
            raise Conflict(f"{failed[0][0].path}: {failed[0][1]!r}")

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self._client is not None:
            self._client.remove_listener(self._state_changed)
            await asyncio.to_thread(self._client.stop)
            await asyncio.to_thread(self._client.close)
