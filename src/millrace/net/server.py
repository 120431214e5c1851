"""Listeners: accept clients, count them, and close those that are idle or stalled."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from millrace.clock import Clock
from millrace.net.buffers import FrameBuffers
from millrace.net.busy_polling import BusyPolling
from millrace.net.connection import Connection, Shared
from millrace.net.file_sender import FileSender
from millrace.net.replies import CloseConnection, Dispatch
from millrace.net.tls_transport import TlsTransport
from millrace.net.traffic import Traffic
from millrace.net.transport import PlainTransport
from millrace.net.tuning import SocketTuning
from millrace.net.turns import Turns
from millrace.net.unread_replies import UnreadReplies
from millrace.timers import Timers

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
BACKLOG = 1024
# Accepting pauses this long when the process has no file descriptor left for another client.
ACCEPT_PAUSE_MS = 1000
IDLE_SWEEP_MS = 1000
# A client that takes longer for its TLS handshake is closed.
HANDSHAKE_MS = 30_000
# While memory is short, stalled connections are looked for this often.
STALLED_SWEEP_MS = 100
EVERY_INTERFACE = ("", "::")

NewClient = Callable[[Connection, str, int], Dispatch]
"""Makes the dispatch of a new connection, given the client's host and the index of its listener."""

TlsContext: TypeAlias = "Callable[[], ssl.SSLContext]"
"""The context for the next connection: certificates may change while the server runs."""


class Server:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        new_client: NewClient,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timers: Timers,
        max_frame_bytes: int,
        max_request_bytes: int,
        max_unread_bytes: int,
        max_connections: int,
        max_idle_seconds: float,
        max_per_host: Callable[[str], int] = lambda host: sys.maxsize,
        busy_poll_seconds: float = 0.0,
    ) -> None:
        self._new_client = new_client
        self._loop = loop
        self._clock = clock
        self._timers = timers
        self._max_connections = max_connections
        self._max_idle_seconds = max_idle_seconds
        self._max_per_host = max_per_host
        self._per_host: Counter[str] = Counter()
        self._files = FileSender()
        self._tuning = SocketTuning()
        self._shared = Shared(
            clock=clock,
            buffers=FrameBuffers(max_request_bytes, self._on_short_memory),
            unread_replies=UnreadReplies(max_unread_bytes, clock),
            turns=Turns(loop, clock),
            busy_polling=BusyPolling(loop, clock, busy_poll_seconds),
            max_frame_bytes=max_frame_bytes,
        )
        self._listening: list[socket.socket] = []
        # By listener; None for plain ones.
        self._tls: list[TlsContext | None] = []
        self._looks_for_stalled = False
        self.connections: set[Connection] = set()
        self.traffic = Traffic(self.connections)

    def bind(self, host: str, port: int, tls: TlsContext | None = None) -> tuple[str, int]:
        """Take an address without accepting yet; port 0 picks a free one. Returns the bound address.

        With `tls` its connections are encrypted.
        """
        family, address = _address_to_bind(host, port)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host in EVERY_INTERFACE:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(address)
            self._tuning.tune_listener(sock)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        self._listening.append(sock)
        self._tls.append(tls)
        bound = sock.getsockname()
        return str(bound[0]), int(bound[1])

    def start(self) -> None:
        """Serve every bound address."""
        for index, sock in enumerate(self._listening):
            self._loop.add_reader(sock.fileno(), self._accept, sock, index)
        self._timers.schedule((self, "idle"), IDLE_SWEEP_MS, self._close_idle)

    # Accepting

    def _accept(self, listening: socket.socket, index: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                # This client has closed already; others may wait behind it.
                continue
            except OSError as error:
                self._pause_accepting(listening, index, error)
                return
            self._welcome(sock, address, index)

    def _pause_accepting(self, listening: socket.socket, index: int, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            logger.error(
                "too many open files: %d connections are served, new ones wait; raise the limit (ulimit -n)",
                len(self.connections),
            )
        else:
            logger.error("cannot accept a connection: %s", error)
        self._loop.remove_reader(listening.fileno())
        self._timers.schedule(
            (self, "accept", index), ACCEPT_PAUSE_MS, lambda: self._resume_accepting(listening, index)
        )

    def _resume_accepting(self, listening: socket.socket, index: int) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept, listening, index)

    def _welcome(self, sock: socket.socket, address: tuple[str, int], index: int) -> None:
        # If one socket serves both families, IPv4 clients have IPv6 addresses.
        host = address[0].removeprefix("::ffff:")
        if len(self.connections) >= self._max_connections:
            logger.warning(
                "refusing %s: %d connections are open (max.connections)", host, self._max_connections
            )
            sock.close()
            return
        if self._per_host[host] >= self._max_per_host(host):
            logger.warning(
                "refusing %s: it has %d connections (max.connections.per.ip)", host, self._per_host[host]
            )
            sock.close()
            return
        sock.setblocking(False)
        self._tuning.tune_client(sock, is_local=address[0] == sock.getsockname()[0])
        peer, tls = f"{host}:{address[1]}", self._tls[index]
        if tls is not None:
            self._welcome_encrypted(sock, peer, host, index, tls())
            return
        transport = PlainTransport(sock, peer, loop=self._loop, files=self._files)
        connection = Connection(transport, self._shared, self._forget)
        self._count(connection)
        connection.start(self._new_client(connection, host, index))

    def _welcome_encrypted(
        self, sock: socket.socket, peer: str, host: str, index: int, context: ssl.SSLContext
    ) -> None:
        """Serve a client once its handshake is done."""
        try:
            transport = TlsTransport(sock, peer, loop=self._loop, context=context)
        except OSError:
            # It has closed already.
            sock.close()
            return
        connection = Connection(transport, self._shared, self._forget)
        self._count(connection)

        def secured(error: OSError | None) -> None:
            self._timers.cancel((self, connection))
            if error is not None:
                logger.info("closing the connection of %s: no TLS handshake: %s", peer, _reason(error))
                connection.close("no TLS handshake")
                return
            try:
                connection.start(self._new_client(connection, host, index))
            except CloseConnection as refusal:
                logger.warning("closing the connection of %s: %s", peer, refusal)
                connection.close(str(refusal))

        self._timers.schedule(
            (self, connection), HANDSHAKE_MS, lambda: connection.close("the TLS handshake takes too long")
        )
        transport.handshake(secured)

    def _count(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._per_host[connection.host] += 1
        self.traffic.opened()

    def _forget(self, connection: Connection) -> None:
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]
        self._timers.cancel((self, connection))
        self.connections.discard(connection)
        self.traffic.closed(connection)

    @property
    def request_memory(self) -> FrameBuffers:
        """The memory that unfinished requests share."""
        return self._shared.buffers

    # Idle and stalled connections

    def _close_idle(self) -> None:
        now = self._clock.monotonic()
        for connection in list(self.connections):
            idle_seconds = now - connection.last_active
            if 0 < self._max_idle_seconds < idle_seconds:
                connection.close("idle for longer than connections.max.idle.ms")
            elif idle_seconds * 1000 > IDLE_SWEEP_MS:
                connection.become_idle()
        self._timers.schedule((self, "idle"), IDLE_SWEEP_MS, self._close_idle)

    def _on_short_memory(self) -> None:
        if not self._looks_for_stalled:
            self._looks_for_stalled = True
            self._loop.call_soon(self._close_stalled)

    def _close_stalled(self) -> None:
        """Close every client that holds memory and hardly sends, for as long as others wait for memory."""
        self._looks_for_stalled = False
        now = self._clock.monotonic()
        for connection in [connection for connection in self.connections if connection.stalls(now)]:
            logger.warning(
                "closing the connection of %s: it stalls in a request while memory is short", connection.peer
            )
            connection.close("stalled")
        if self._shared.buffers.is_short and self._listening:
            self._looks_for_stalled = True
            self._timers.schedule((self, "stalled"), STALLED_SWEEP_MS, self._close_stalled)

    def stop(self) -> None:
        """Stop accepting and close every connection."""
        for name in ("idle", "stalled"):
            self._timers.cancel((self, name))
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()
        for connection in list(self.connections):
            connection.close("the broker stops")
        self._files.close()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return error.strerror or str(error)


def _address_to_bind(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Every interface means both families; for a name that has addresses of both, IPv4 wins, as in Java."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    preferred = socket.AF_INET6 if host in EVERY_INTERFACE and socket.has_dualstack_ipv6() else socket.AF_INET
    family, _, _, _, address = min(found, key=lambda info: info[0] != preferred)
    return family, address
