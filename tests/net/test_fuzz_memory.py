"""Memory stays bounded whatever clients do to make the broker hold it, and those who behave get theirs."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from millrace.deferred import Deferred
from millrace.net import server as server_module
from millrace.net.buffers import POOLED_BYTES, SCRATCH_BYTES, FrameBuffers
from millrace.net.connection import PIECES_PER_TURN, SHORT_READ_BYTES, CloseConnection, Dispatch, Reply
from millrace.net.server import Server

MAX_FRAME = 8 << 20
PATIENCE_SECONDS = 20


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(request: memoryview) -> Reply:
    return [frame(bytes(request))]


@asynccontextmanager
async def serving(
    dispatch: Dispatch, *, max_bytes_in_flight: int = 64 << 20
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(
        lambda connection, host, index: dispatch,
        loop=asyncio.get_running_loop(),
        max_frame_bytes=MAX_FRAME,
        max_bytes_in_flight=max_bytes_in_flight,
        max_connections=1000,
        max_idle_seconds=600,
    )
    _, port = server.bind("127.0.0.1", 0)
    server.start()
    try:
        yield server, port
    finally:
        server.stop()


async def connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def read_frame(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
        piece = await asyncio.wait_for(loop.sock_recv(sock, 1 << 16), PATIENCE_SECONDS)
        assert piece, "closed"
        received += piece
    return bytes(received[4:])


async def closed(sock: socket.socket) -> bool:
    loop = asyncio.get_running_loop()
    try:
        return not await asyncio.wait_for(loop.sock_recv(sock, 1), PATIENCE_SECONDS)
    except ConnectionResetError:
        return True


async def until(condition: object) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.001)


async def test_no_limit_on_memory_is_kafkas_minus_one() -> None:
    assert FrameBuffers(-1).take(POOLED_BYTES) is not None
    async with serving(echo, max_bytes_in_flight=-1) as (_, port):
        sock = await connect(port)
        payload = b"x" * (4 << 20)
        await asyncio.get_running_loop().sock_sendall(sock, frame(payload))
        assert await read_frame(sock) == payload
        sock.close()


async def test_a_client_that_never_reads_is_not_read_either() -> None:
    handled = 0

    def amplify(request: memoryview) -> Reply:
        nonlocal handled
        handled += 1
        return [frame(bytes(100_000))]

    async with serving(amplify) as (_, port):
        sock = await connect(port)
        # Hundreds of requests in one piece, whose answers fill every buffer there is.
        await asyncio.get_running_loop().sock_sendall(sock, frame(b"12345678") * 2000)
        other = await connect(port)
        await asyncio.get_running_loop().sock_sendall(other, frame(b"12345678"))
        await read_frame(other)
        seen = handled
        for _ in range(100):
            await asyncio.sleep(0)
        assert handled == seen < 500, "it goes on handling requests of a client that takes no answers"
        sock.close()
        other.close()


async def test_a_long_pipeline_gives_others_their_turn() -> None:
    order: list[bytes] = []

    def note(request: memoryview) -> Reply:
        order.append(bytes(request[:1]))
        return [frame(bytes(request))]

    async with serving(note) as (_, port):
        loop = asyncio.get_running_loop()
        greedy, modest = await connect(port), await connect(port)
        await loop.sock_sendall(greedy, frame(b"greedy..") * 400)
        await loop.sock_sendall(modest, frame(b"modest.."))
        await read_frame(modest)
        assert order.index(b"m") <= 3 * PIECES_PER_TURN
        for sock in (greedy, modest):
            sock.close()


async def test_a_pipeline_is_answered_whole_and_in_order_however_long() -> None:
    async with serving(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        payloads = [b"%08d" % number for number in range(5 * PIECES_PER_TURN + 3)]
        writer.write(b"".join(map(frame, payloads)))
        for payload in payloads:
            assert await reader.readexactly(4 + len(payload)) == frame(payload)
        writer.close()


async def test_what_waits_behind_a_parked_request_counts() -> None:
    parked: list[Deferred[Reply | CloseConnection]] = []

    def park(request: memoryview) -> Deferred[Reply | CloseConnection]:
        parked.append(Deferred())
        return parked[-1]

    async with serving(park) as (server, port):
        sock = await connect(port)
        await asyncio.get_running_loop().sock_sendall(sock, frame(b"parked..") + frame(b"waits...") * 1000)
        await until(lambda: server._buffers.bytes_in_use > 0)
        assert server._buffers.bytes_in_use <= SCRATCH_BYTES
        sock.close()
        for reply in parked:
            reply.resolve([frame(b"answered")])
        await until(lambda: server._buffers.bytes_in_use == 0)


async def test_little_is_read_while_memory_is_full() -> None:
    limit = 2 * POOLED_BYTES
    async with serving(echo, max_bytes_in_flight=limit) as (server, port):
        loop = asyncio.get_running_loop()
        hogs = [await connect(port) for _ in range(2)]
        for hog in hogs:
            await loop.sock_sendall(hog, struct.pack(">i", MAX_FRAME) + bytes(1000))
        await until(lambda: server._buffers.full)
        waiting = await connect(port)
        await loop.sock_sendall(waiting, struct.pack(">i", MAX_FRAME) + bytes(SCRATCH_BYTES // 2))
        await until(lambda: server._buffers.short)
        (held,) = [len(c._backlog) for c in server.connections if c._backlog]
        assert held <= SHORT_READ_BYTES + 4
        small = await connect(port)
        await loop.sock_sendall(small, frame(b"small one"))
        assert await read_frame(small) == b"small one", "a small request needs no memory"
        for sock in (*hogs, waiting, small):
            sock.close()


async def test_a_frame_that_drips_gives_way_when_others_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_STALL_SECONDS", 0.05)
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.01)
    async with serving(echo, max_bytes_in_flight=POOLED_BYTES) as (server, port):
        loop = asyncio.get_running_loop()
        dripping = await connect(port)
        await loop.sock_sendall(dripping, struct.pack(">i", MAX_FRAME) + b"x")
        await until(lambda: server._buffers.full)

        async def drip() -> None:
            while True:
                await loop.sock_sendall(dripping, b"x")
                await asyncio.sleep(0.005)

        dripper = asyncio.create_task(drip())
        large = await connect(port)
        payload = b"y" * (2 * POOLED_BYTES)
        await asyncio.wait_for(loop.sock_sendall(large, frame(payload)), PATIENCE_SECONDS)
        assert await read_frame(large) == payload
        assert await closed(dripping)
        assert "stalls in a request while memory is short" in caplog.text
        dripper.cancel()
        await asyncio.gather(dripper, return_exceptions=True)
        for sock in (dripping, large):
            sock.close()


async def test_a_late_answer_may_be_that_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    late: Deferred[Reply | CloseConnection] = Deferred()
    async with serving(lambda request: late) as (server, port):
        sock = await connect(port)
        await asyncio.get_running_loop().sock_sendall(sock, frame(b"whatever"))
        await until(lambda: any(connection.busy for connection in server.connections))
        with caplog.at_level(logging.WARNING):
            late.resolve(CloseConnection("this cannot be answered"))
        assert await closed(sock)
        assert "this cannot be answered" in caplog.text
        sock.close()
