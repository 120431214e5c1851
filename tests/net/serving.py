"""A server of the network layer alone, and clients for it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from millrace.clock import Clock
from millrace.net.buffers import FrameBuffers
from millrace.net.connection import Connection
from millrace.net.replies import Dispatch, Reply
from millrace.net.server import Server
from millrace.timers import LoopTimers, Timers

MAX_FRAME = 8 << 20
PATIENCE_SECONDS = 20


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(request: memoryview) -> Reply:
    return [frame(bytes(request))]


@asynccontextmanager
async def serving(
    dispatch: Dispatch, *, clock: Clock | None = None, timers: Timers | None = None, **limits: float
) -> AsyncIterator[tuple[Server, int]]:
    """A server whose clients all have this dispatch; yields it with its port."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {
        "max_frame_bytes": MAX_FRAME,
        "max_request_bytes": 64 << 20,
        "max_unread_bytes": 64 << 20,
        "max_connections": 1000,
        "max_idle_seconds": 600.0,
    }
    server = Server(
        lambda connection, host, index: dispatch,
        loop=loop,
        clock=Clock() if clock is None else clock,
        timers=LoopTimers(loop) if timers is None else timers,
        **(options | limits),
    )
    _, port = server.bind("127.0.0.1", 0)
    server.start()
    try:
        yield server, port
    finally:
        server.stop()


def buffers(server: Server) -> FrameBuffers:
    return server.request_memory


async def only_connection(server: Server) -> Connection:
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    return connection


def socket_of(connection: Connection) -> socket.socket:
    """The server's end of a connection."""
    transport: Any = connection._transport
    sock: socket.socket = transport._socket
    return sock


class Client:
    """One connection; unlike a StreamReader it receives nothing that the test does not read."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = bytearray()

    @classmethod
    async def connect(cls, port: int, *, receive_buffer_bytes: int | None = None) -> Client:
        sock = socket.socket()
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(sock)

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read_frame(self) -> bytes:
        """The next response, without its length."""
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)

    async def read(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self._received) < size:
                piece = await loop.sock_recv(self.socket, 1 << 16)
                if not piece:
                    raise EOFError(f"closed after {len(self._received)} of {size} bytes")
                self._received += piece
        read = bytes(self._received[:size])
        del self._received[:size]
        return read

    async def is_closed(self) -> bool:
        """Wait for the server to say something, and tell whether that was the end."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return not await loop.sock_recv(self.socket, 1)
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()


@asynccontextmanager
async def clients(port: int, count: int, **options: Any) -> AsyncIterator[list[Client]]:
    connected: list[Client] = []
    try:
        for _ in range(count):
            connected.append(await Client.connect(port, **options))
        yield connected
    finally:
        for client in connected:
            client.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0)
