"""The MQTT server: listeners in front of the hub."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.mqtt.client import ConnectedClient
from millrace.mqtt.connection import Connection, Handler
from millrace.mqtt.hub import Hub
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.passwords import Anyone, Authenticator
from millrace.mqtt.sessions.registry import Sessions

if TYPE_CHECKING:
    from millrace.mqtt.counters import Counters
    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

BACKLOG = 4096
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on; with `tls`, only for clients that use it."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    is_websocket: bool = False
    origins: tuple[str, ...] = ()
    """Web sites whose pages may use the WebSocket, besides the server's own."""


class Server:
    """Serves MQTT clients until it is stopped. Owned by one event loop."""

    def __init__(self, settings: Settings, authenticator: Authenticator | None = None) -> None:
        self._settings = settings
        self._authenticator = authenticator or Anyone()
        self._hub = Hub(settings)
        self._sessions = Sessions(self._hub)
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._upkeep: asyncio.Task[None] | None = None
        self.addresses: list[tuple[str, int]] = []

    @property
    def counters(self) -> Counters:
        """The counts of now."""
        counters = self._hub.counters
        counters.sessions = len(self._sessions.by_client)
        counters.subscriptions = self._hub.tree.size
        counters.retained_messages = self._hub.retained.size
        return counters

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Load what the log has, and listen. Raises LogUnavailable or OSError."""
        self._sessions.load(await self._hub.start())
        loop = asyncio.get_running_loop()
        for listener in listeners:
            server = await loop.create_server(
                self._websocket(listener.origins) if listener.is_websocket else self._connection,
                listener.host,
                listener.port,
                ssl=listener.tls,
                backlog=BACKLOG,
            )
            self._servers.append(server)
            self.addresses.append(server.sockets[0].getsockname()[:2])
        self._upkeep = loop.create_task(self._keep_up())

    def _connection(self) -> Connection:
        return Connection(self._settings, self._hub.counters, self._connections, self._client)

    def _websocket(self, origins: tuple[str, ...]) -> Callable[[], asyncio.Protocol]:
        from millrace.mqtt.websocket import WebSocket

        return lambda: WebSocket(self._connection(), self._settings.max_packet_size, origins)

    def _client(self, connection: Connection) -> Handler:
        return ConnectedClient(connection, self._hub, self._sessions, self._authenticator)

    async def _keep_up(self) -> None:
        """Close silent connections and store positions, from time to time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.store_seconds)
            now = loop.time()
            for connection in [each for each in self._connections if each.is_silent(now)]:
                self._hub.counters.keep_alive_timeouts += 1
                connection.close(Reason.KEEP_ALIVE_TIMEOUT, "nothing arrived within the keep-alive time")
            self._sessions.store_positions()

    async def stop(self) -> None:
        """Disconnect every client, and write what is on its way. Sessions stay in the log."""
        if self._upkeep is not None:
            self._upkeep.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close(Reason.SERVER_SHUTTING_DOWN, "the server stops")
        # Sessions and wills are written when the connections have ended.
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        self._sessions.store_positions()
        await self._hub.close()
