"""Listeners: accept clients, keep count of them, close the idle ones."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from millrace.net.buffers import FrameBuffers
from millrace.net.busy_polling import BusyPolling
from millrace.net.connection import Connection, Dispatch
from millrace.net.file_sender import FileSender

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
BACKLOG = 1024
# How long accepting rests when the process has no file descriptor left for one more client.
ACCEPT_PAUSE_SECONDS = 1.0
SWEEP_SECONDS = 1.0
# Once others wait for memory, a half-sent frame may be slow no longer than this.
MAX_STALL_SECONDS = 5.0
EVERY_INTERFACE = ("", "::")
# Within the machine nothing is congested, and BBR, where it is the system's choice, sets a timer for each
# packet; a connection that began with it goes on doing so under any other. Reno is in every Linux kernel and
# open to every user; other systems have no such choice. Clients of other machines get what the system chose.
UNPACED = b"reno"
# Room for an answer of several partitions, which then leaves at one go. What waits there are pages of files,
# held and not copied; clients of other machines, which may be slow to take them, get what the system chose.
LOCAL_SEND_BUFFER_BYTES = 4 * 1024 * 1024

NewClient = Callable[[Connection, str, int], Dispatch]
"""Given the connection, the client's host and the index of its listener: what handles its frames."""


class Server:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        new_client: NewClient,
        *,
        loop: asyncio.AbstractEventLoop,
        max_frame_bytes: int,
        max_bytes_in_flight: int,
        max_connections: int,
        max_idle_seconds: float,
        busy_poll_seconds: float = 0.0,
    ) -> None:
        self._new_client = new_client
        self._loop = loop
        self._max_frame_bytes = max_frame_bytes
        self._max_connections = max_connections
        self._max_idle_seconds = max_idle_seconds
        self._buffers = FrameBuffers(max_bytes_in_flight)
        self._busy_polling = BusyPolling(loop, busy_poll_seconds)
        self._files = FileSender()
        self._congestion_control = _congestion_control()
        self._has_large_send_buffers = _has_large_send_buffers()
        self._listening: list[socket.socket] = []
        self._sweep: asyncio.TimerHandle | None = None
        self.connections: set[Connection] = set()

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take an address without accepting yet; port 0 picks a free one. Returns what was bound."""
        family, address = _address_to_bind(host, port)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host in EVERY_INTERFACE:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(address)
            _set_congestion_control(sock, UNPACED)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        self._listening.append(sock)
        bound = sock.getsockname()
        return str(bound[0]), int(bound[1])

    def start(self) -> None:
        """Serve every bound address."""
        for index, sock in enumerate(self._listening):
            self._loop.add_reader(sock.fileno(), self._accept, sock, index)
        self._close_idle()

    def _accept(self, listening: socket.socket, index: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                # This one is gone already; others may wait behind it.
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
        self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, listening, index)

    def _resume_accepting(self, listening: socket.socket, index: int) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept, listening, index)

    def _welcome(self, sock: socket.socket, address: tuple[str, int], index: int) -> None:
        # Where one socket serves both families, IPv4 clients come under an address of IPv6.
        host = address[0].removeprefix("::ffff:")
        if len(self.connections) >= self._max_connections:
            logger.warning(
                "refusing %s: %d connections are open (max.connections)", host, self._max_connections
            )
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address[0] != sock.getsockname()[0]:
            _set_congestion_control(sock, self._congestion_control)
        elif self._has_large_send_buffers:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        connection = Connection(
            sock,
            f"{host}:{address[1]}",
            loop=self._loop,
            buffers=self._buffers,
            busy_polling=self._busy_polling,
            files=self._files,
            max_frame_bytes=self._max_frame_bytes,
            on_close=self.connections.discard,
        )
        self.connections.add(connection)
        connection.start(self._new_client(connection, host, index))

    def _close_idle(self) -> None:
        now = self._loop.time()
        for connection in list(self.connections):
            idle_seconds = now - connection.last_active
            if idle_seconds > SWEEP_SECONDS:
                # It sends more slowly than it seemed, or nothing.
                connection.await_bytes(1)
            if 0 < self._max_idle_seconds < idle_seconds:
                connection.close("idle for longer than connections.max.idle.ms")
            elif self._buffers.short and connection.stalls(now, MAX_STALL_SECONDS):
                logger.warning(
                    "closing the connection of %s: it stalls in a request while memory is short",
                    connection.peer,
                )
                connection.close("stalled")
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_idle)

    def stop(self) -> None:
        """Stop accepting and close every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        for connection in list(self.connections):
            connection.close("the broker stops")
        self._files.close()


def _congestion_control() -> bytes:
    """What the system gives to new connections; nothing where it has no choice, or does not tell."""
    if hasattr(socket, "TCP_CONGESTION"):
        with suppress(OSError), socket.socket() as sock:
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    return b""


def _set_congestion_control(sock: socket.socket, name: bytes) -> None:
    if hasattr(socket, "TCP_CONGESTION"):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def _has_large_send_buffers() -> bool:
    """Whether the system grants them; where it gives less, what it grows by itself is larger."""
    with suppress(OSError), socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= LOCAL_SEND_BUFFER_BYTES
    return False


def _address_to_bind(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Every interface is both families where the system can; of a name that has both, IPv4, as in Java."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    preferred = socket.AF_INET6 if host in EVERY_INTERFACE and socket.has_dualstack_ipv6() else socket.AF_INET
    family, _, _, _, address = min(found, key=lambda info: info[0] != preferred)
    return family, address
