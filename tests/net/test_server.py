"""The network layer by itself: frames in, replies out, whatever the client does."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import itertools
import logging
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace.deferred import Deferred
from millrace.net import connection
from millrace.net.buffers import POOLED_BYTES, SCRATCH_BYTES
from millrace.net.connection import (
    AWAITED_BYTES,
    CLOSE_PART_BYTES,
    SENDING_SECONDS_PER_TURN,
    CloseConnection,
    Connection,
    Dispatch,
    Reply,
)
from millrace.net.file_sender import FileSender
from millrace.net.server import Server
from millrace.storage.file_slice import FileSlice

MAX_FRAME = 8 * 1024 * 1024


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(request: memoryview) -> Reply:
    return [frame(bytes(request))]


@asynccontextmanager
async def serving(dispatch: Dispatch, **limits: float) -> AsyncIterator[tuple[Server, int]]:
    options: dict[str, float] = {
        "max_frame_bytes": MAX_FRAME,
        "max_bytes_in_flight": 64 * 1024 * 1024,
        "max_connections": 1000,
        "max_idle_seconds": 600.0,
    }
    server = Server(
        lambda connection, host, index: dispatch,
        loop=asyncio.get_running_loop(),
        **(options | limits),  # type: ignore[arg-type]
    )
    _, port = server.bind("127.0.0.1", 0)
    server.start()
    try:
        yield server, port
    finally:
        server.stop()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="this system has no such choice")
@pytest.mark.parametrize(("host", "is_remote"), [("127.0.0.1", False), ("127.0.0.2", True)])
async def test_only_clients_of_other_machines_are_paced(host: str, *, is_remote: bool) -> None:
    with socket.socket() as new:
        choice_of_the_system = congestion_control(new)
    async with serving(echo) as (server, port):
        # Whoever begins with BBR stays paced, so nobody must.
        assert [congestion_control(listening) for listening in server._listening] == [b"reno"]
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
        await until(lambda: len(server.connections) == 1)
        [connection] = server.connections
        chosen = congestion_control(connection._socket)
        assert chosen == (choice_of_the_system if is_remote else b"reno")
        writer.close()


@pytest.mark.parametrize(
    ("host", "wanted_bytes", "is_set"),
    [
        ("127.0.0.1", 100_000, True),
        ("127.0.0.2", 100_000, False),
        # More than any system gives: it does better left alone.
        ("127.0.0.1", 1 << 30, False),
    ],
)
async def test_clients_on_this_machine_have_a_large_send_buffer_where_the_system_grants_it(
    monkeypatch: pytest.MonkeyPatch, host: str, wanted_bytes: int, *, is_set: bool
) -> None:
    monkeypatch.setattr("millrace.net.server.LOCAL_SEND_BUFFER_BYTES", wanted_bytes)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)
        granted_bytes = send_buffer_bytes(other)
    async with serving(echo) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
        await until(lambda: len(server.connections) == 1)
        [connection] = server.connections
        assert (send_buffer_bytes(connection._socket) == granted_bytes) is is_set
        writer.close()


def send_buffer_bytes(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


async def test_frames_are_answered_however_they_are_cut() -> None:
    payloads = [bytes([65 + n]) * (8 + n) for n in range(5)]
    stream = b"".join(map(frame, payloads))
    async with serving(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for position in range(len(stream)):
            writer.write(stream[position : position + 1])
            await writer.drain()
        assert [await read_frame(reader) for _ in payloads] == payloads
        writer.write(stream)
        assert [await read_frame(reader) for _ in payloads] == payloads
        writer.close()


@pytest.mark.parametrize(
    "size", [SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES + 1, POOLED_BYTES, POOLED_BYTES + 1, MAX_FRAME]
)
async def test_large_frames_arrive_whole(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    async with serving(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        writer.write(b"".join([frame(b"little one"), frame(payload), frame(b"little two")]))
        assert await read_frame(reader) == b"little one"
        assert await read_frame(reader) == payload
        assert await read_frame(reader) == b"little two"
        assert server._buffers.bytes_in_use == 0
        writer.close()


class Stream(socket.socket):
    """A socket that has as much to receive as a part says, whenever it is asked."""

    def __init__(self, part_bytes: int) -> None:
        super().__init__()
        self.part_bytes = part_bytes

    def recv_into(self, view: Any, *_: Any) -> int:
        return min(len(view), self.part_bytes)


@pytest.mark.parametrize(
    ("part_bytes", "awaited"),
    [
        pytest.param(CLOSE_PART_BYTES - 1, [1, 1], id="comes slowly"),
        pytest.param(CLOSE_PART_BYTES, [AWAITED_BYTES, AWAITED_BYTES], id="comes quickly"),
        pytest.param(
            300_000,
            [AWAITED_BYTES, AWAITED_BYTES, POOLED_BYTES - 900_000],
            id="has less left than was awaited",
        ),
        pytest.param(POOLED_BYTES - 1000, [1000, 1], id="is nearly there"),
        pytest.param(POOLED_BYTES, [1], id="is there"),
    ],
)
async def test_of_a_large_frame_that_comes_quickly_more_is_awaited(
    part_bytes: int, awaited: list[int]
) -> None:
    handled: list[int] = []
    async with serving(echo) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(server.connections) == 1)
        [client] = server.connections
        client._dispatch = lambda frame: handled.append(len(frame))
        client._begin_partial(POOLED_BYTES, memoryview(b""))
        with Stream(part_bytes) as stream:
            usual, client._socket = client._socket, stream
            for expected in awaited:
                client._on_readable()
                assert low_water(client) == expected
            client._socket = usual
        assert handled[:1] == ([POOLED_BYTES] if part_bytes >= POOLED_BYTES - 1000 else [])
        writer.close()


async def test_who_sends_the_rest_of_a_frame_slowly_is_heard_of_again_and_is_not_idle() -> None:
    payload = b"x" * POOLED_BYTES
    async with serving(echo, max_idle_seconds=60) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(server.connections) == 1)
        [client] = server.connections
        client._partial, client._frame_end = memoryview(bytearray(POOLED_BYTES)), POOLED_BYTES
        client.await_bytes(AWAITED_BYTES)
        client.last_active -= 59
        writer.write(payload[:10])
        await until(lambda: unread_bytes(client) == 10)
        await asyncio.sleep(0)
        assert client._filled == 0, "it was told of less than it awaits"
        server._close_idle()
        await until(lambda: client._filled == 10)
        client.last_active -= 2
        server._close_idle()
        assert server.connections == {client}
        writer.close()


def unread_bytes(client: Connection) -> int:
    return int.from_bytes(fcntl.ioctl(client._fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def low_water(client: Connection) -> int:
    return client._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, MAX_FRAME + 1, 2**31 - 1])
async def test_absurd_sizes_close_only_that_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo) as (server, port):
        good_reader, good_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"answered") + struct.pack(">i", size) + b"x" * 100)
        assert await read_frame(reader) == b"answered"
        assert await reader.read() == b""
        assert "socket.request.max.bytes" in caplog.text
        good_writer.write(frame(b"still here"))
        assert await read_frame(good_reader) == b"still here"
        assert len(server.connections) == 1
        writer.close()
        good_writer.close()


async def test_replies_keep_the_order_of_requests_when_one_must_wait() -> None:
    first: Deferred[Reply] = Deferred()
    seen: list[bytes] = []

    def dispatch(request: memoryview) -> Reply | Deferred[Reply]:
        seen.append(bytes(request))
        return first if len(seen) == 1 else echo(request)

    async with serving(dispatch) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"waits...") + frame(b"comes 2nd") + frame(b"comes 3rd")[:-2])
        await until(lambda: bool(seen))
        writer.write(b"rd" + frame(b"comes 4th"))
        await asyncio.sleep(0.02)
        assert seen == [b"waits..."], "a later request was handled before the first was answered"
        first.resolve([frame(b"at last")])
        answers = [await read_frame(reader) for _ in range(4)]
        assert answers == [b"at last", b"comes 2nd", b"comes 3rd", b"comes 4th"]
        writer.close()


async def test_a_client_that_leaves_cancels_what_waits_for_it() -> None:
    cancelled = asyncio.Event()

    def dispatch(request: memoryview) -> Deferred[Reply]:
        return Deferred(on_cancel=cancelled.set)

    async with serving(dispatch) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"long poll"))
        await until(lambda: any(connection.busy for connection in server.connections))
        writer.transport.abort()
        server.connections.copy().pop().close("test")
        await asyncio.wait_for(cancelled.wait(), 5)


async def test_a_request_that_cannot_be_answered_closes_after_earlier_answers() -> None:
    def dispatch(request: memoryview) -> Reply:
        if bytes(request) == b"nonsense":
            raise CloseConnection("nonsense")
        return echo(request)

    async with serving(dispatch) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"sensible") + frame(b"nonsense") + frame(b"never seen"))
        assert await read_frame(reader) == b"sensible"
        assert await reader.read() == b""
        writer.close()


async def test_files_are_sent_whole_to_a_slow_reader(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    path = tmp_path / "segment.log"
    path.write_bytes(content)

    def dispatch(request: memoryview) -> Reply:
        piece = FileSlice(io.FileIO(path), 100, len(content) - 100)
        header = struct.pack(">i", 5 + len(piece) + 4) + b"first"
        return [header, piece, b"last"]

    async with serving(dispatch) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        writer.write(frame(b"fetch me") * 2)
        for _ in range(2):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            received = bytearray()
            while len(received) < size:
                received += await reader.read(min(3000, size - len(received)))
            assert bytes(received) == b"first" + content[100:] + b"last"
        writer.close()


async def test_whoever_asks_for_much_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(100_000))
    pieces, events = 20, list[str]()
    ticks = itertools.count()
    send = FileSender.send

    def send_and_let_another_ask(*arguments: Any, **options: Any) -> int:
        if not events:
            other.sendall(frame(b"a question"))
        events.append("file")
        return send(*arguments, **options)

    def dispatch(request: memoryview) -> Reply:
        if request == b"a question":
            events.append("question")
            return echo(request)
        size = struct.pack(">i", pieces * 100_000)
        return [size, *(FileSlice(io.FileIO(path), 0, 100_000) for _ in range(pieces))]

    monkeypatch.setattr(FileSender, "send", send_and_let_another_ask)
    # Half of a turn's time passes from look to look.
    monkeypatch.setattr(connection, "monotonic", lambda: next(ticks) * SENDING_SECONDS_PER_TURN / 2)
    async with serving(dispatch) as (server, port):
        with socket.create_connection(("127.0.0.1", port)) as other:
            await until(lambda: len(server.connections) == 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
            writer.write(frame(b"everything"))
            assert len(await read_frame(reader)) == pieces * 100_000
            writer.close()
    assert events.count("file") >= pieces
    assert events.index("question") < 5


async def test_a_file_that_has_become_shorter_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"cut")
    length = 1000

    def dispatch(request: memoryview) -> Reply:
        return [struct.pack(">i", length), FileSlice(io.FileIO(path), 0, length)]

    async with serving(dispatch) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"fetch me"))
        assert len(await reader.read()) < length
        writer.close()
        await until(lambda: not server.connections)


async def test_requests_of_a_client_that_does_not_read_stay_in_the_kernel() -> None:
    handled: list[bytes] = []

    def dispatch(request: memoryview) -> Reply:
        handled.append(bytes(request))
        # More than all the buffers between the two sockets take.
        return [frame(b"x" * 50_000_000 if len(handled) == 1 else bytes(request))]

    async with serving(dispatch) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frame(b"the first"))
        await until(lambda: len(handled) == 1)
        (client,) = server.connections
        await until(lambda: client.busy)
        requests = [b"request %d" % number for number in range(50)]
        for request in requests:
            writer.write(frame(request))
            # Each is a piece of its own, which the server could read by itself.
            await asyncio.sleep(0)
        await until(lambda: unread_bytes(client) == len(b"".join(map(frame, requests))))
        assert len(handled) == 1, "replies pile up in memory for a client that does not read them"

        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await read_frame(reader)) == 50_000_000
        assert [await read_frame(reader) for _ in requests] == requests
        writer.close()


async def test_memory_for_unfinished_frames_is_bounded_and_everyone_gets_through() -> None:
    limit = 4 * POOLED_BYTES
    peak = 0

    def dispatch(request: memoryview) -> Reply:
        return [frame(b"done")]

    async with serving(dispatch, max_bytes_in_flight=limit) as (server, port):
        payload = frame(b"x" * (3 * POOLED_BYTES))
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in clients:
            writer.write(payload[: 2 * POOLED_BYTES])
        await until(lambda: server._buffers.short)
        for _, writer in clients:
            writer.write(payload[2 * POOLED_BYTES :])

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, server._buffers.bytes_in_use)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        async with asyncio.timeout(30):
            for reader, writer in clients:
                assert await read_frame(reader) == b"done"
                writer.close()
        watcher.cancel()
        # One frame may go over the limit, with its old and new buffer while it grows.
        assert peak <= limit + 2 * len(payload)
        assert server._buffers.bytes_in_use == 0


async def test_a_claimed_size_costs_no_memory_until_the_bytes_come() -> None:
    async with serving(echo) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", MAX_FRAME) + b"just a few bytes")
        await until(lambda: server._buffers.bytes_in_use > 0)
        assert server._buffers.bytes_in_use <= POOLED_BYTES
        writer.close()
        await until(lambda: server._buffers.bytes_in_use == 0)


async def test_more_connections_than_allowed_are_refused() -> None:
    async with serving(echo, max_connections=2) as (server, port):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await clients[2][0].read() == b""
        assert len(server.connections) == 2
        clients[0][1].write(frame(b"still served"))
        assert await read_frame(clients[0][0]) == b"still served"
        for _, writer in clients:
            writer.close()


async def test_idle_connections_are_closed_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.net.server.SWEEP_SECONDS", 0.02)
    async with serving(echo, max_idle_seconds=0.25) as (_, port):
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        closed = asyncio.create_task(idle_reader.read())
        while not closed.done():
            writer.write(frame(b"busy busy"))
            assert await read_frame(reader) == b"busy busy"
            await asyncio.sleep(0.01)
        assert closed.result() == b""
        writer.close()
        idle_writer.close()


async def test_running_out_of_files_pauses_accepting_and_serves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("millrace.net.server.ACCEPT_PAUSE_SECONDS", 0.05)
    async with serving(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(server.connections) == 1)
        listening = server._listening[0]
        failures = [OSError(errno.EMFILE, "Too many open files")]

        class Exhausted:
            def accept(self) -> object:
                if failures:
                    raise failures.pop()
                return listening.accept()

            def fileno(self) -> int:
                return listening.fileno()

        asyncio.get_running_loop().remove_reader(listening.fileno())
        asyncio.get_running_loop().add_reader(listening.fileno(), server._accept, Exhausted(), 0)
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: not failures)
        writer.write(frame(b"still served"))
        assert await read_frame(reader) == b"still served"
        late_writer.write(frame(b"my turn now"))
        assert await asyncio.wait_for(read_frame(late_reader), 5) == b"my turn now"
        assert "ulimit -n" in caplog.text
        assert caplog.records[-1].levelno == logging.ERROR
        writer.close()
        late_writer.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["", "::"])
async def test_every_interface_means_both_families_of_addresses(host: str) -> None:
    clients: list[str] = []

    def new_client(connection: Connection, client_host: str, index: int) -> Dispatch:
        clients.append(client_host)
        return echo

    server = Server(
        new_client,
        loop=asyncio.get_running_loop(),
        max_frame_bytes=MAX_FRAME,
        max_bytes_in_flight=MAX_FRAME,
        max_connections=10,
        max_idle_seconds=60,
    )
    _, port = server.bind(host, 0)
    server.start()
    for address in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(frame(b"over here"))
        assert await read_frame(reader) == b"over here"
        writer.close()
    assert clients == ["127.0.0.1", "::1"]
    server.stop()
