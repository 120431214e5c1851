"""One client's connection: order of replies, flow control, and its end."""

from __future__ import annotations

import asyncio
import io
import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from millrace.clock import Clock
from millrace.deferred import Deferred
from millrace.net.buffers import SCRATCH_BYTES
from millrace.net.file_sender import FileSender
from millrace.net.outbox import BUFFERS_PER_SEND, MAX_GATHERED_BYTES, SENDING_SECONDS
from millrace.net.replies import CloseConnection, LateReply, Reply
from millrace.net.turns import ROUND_SECONDS
from millrace.storage.file_slice import FileSlice

from .serving import Client, buffers, clients, echo, frame, only_connection, serving, until


class Ticking(Clock):
    """A clock on which time passes each time it is read."""

    __slots__ = ("_now", "_step")

    def __init__(self, step: float) -> None:
        self._now = 0.0
        self._step = step

    def monotonic(self) -> float:
        self._now += self._step
        return self._now


# Order


async def test_requests_cut_anywhere_are_answered_in_order() -> None:
    payloads = [bytes([65 + n]) * (8 + n) for n in range(5)]
    stream = b"".join(map(frame, payloads))
    async with serving(echo) as (_, port), clients(port, 1) as (client,):
        for position in range(len(stream)):
            await client.send(stream[position : position + 1])
        assert [await client.read_frame() for _ in payloads] == payloads
        await client.send(stream)
        assert [await client.read_frame() for _ in payloads] == payloads


async def test_a_large_request_is_answered_between_small_ones() -> None:
    payload = bytes(range(256)) * 8192
    async with serving(echo) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"small one") + frame(payload) + frame(b"small two"))
        assert await client.read_frame() == b"small one"
        assert await client.read_frame() == payload
        assert await client.read_frame() == b"small two"
        assert buffers(server).bytes_in_use == 0


async def test_replies_keep_the_order_of_requests_when_one_must_wait() -> None:
    first: LateReply = Deferred()
    seen: list[bytes] = []

    def dispatch(request: memoryview) -> Reply | LateReply:
        seen.append(bytes(request))
        return first if len(seen) == 1 else echo(request)

    async with serving(dispatch) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"waits...") + frame(b"comes 2nd") + frame(b"comes 3rd")[:-2])
        await until(lambda: seen)
        await client.send(b"rd" + frame(b"comes 4th"))
        # The connection is readable now, and would be read in any of these turns.
        for _ in range(10):
            await asyncio.sleep(0)
        assert seen == [b"waits..."], "a later request was handled before the first was answered"
        first.resolve([frame(b"at last.")])
        responses = [await client.read_frame() for _ in range(4)]
        assert responses == [b"at last.", b"comes 2nd", b"comes 3rd", b"comes 4th"]
        assert buffers(server).bytes_in_use == 0


async def test_a_reply_that_is_ready_at_once_may_be_deferred() -> None:
    def dispatch(request: memoryview) -> LateReply:
        reply: LateReply = Deferred()
        reply.resolve(echo(request))
        return reply

    async with serving(dispatch) as (_, port), clients(port, 1) as (client,):
        payloads = [b"%08d" % number for number in range(1000)]
        await client.send(b"".join(map(frame, payloads)))
        assert [await client.read_frame() for _ in payloads] == payloads


async def test_a_request_without_a_reply_does_not_delay_the_next() -> None:
    def dispatch(request: memoryview) -> Reply:
        return None if bytes(request[:6]) == b"silent" else echo(request)

    async with serving(dispatch) as (_, port), clients(port, 1) as (client,):
        await client.send(frame(b"silent 1") + frame(b"answered") + frame(b"silent 2"))
        assert await client.read_frame() == b"answered"


@pytest.mark.parametrize("empty", range(4))
async def test_a_reply_may_have_empty_chunks(empty: int, tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"from a file")

    def dispatch(request: memoryview) -> Reply:
        chunks = [struct.pack(">i", 21), FileSlice(io.FileIO(path), 0, 11), b"from memory"[1:]]
        return [*chunks[:empty], b"", *chunks[empty:]]

    async with serving(dispatch) as (_, port), clients(port, 1) as (client,):
        for _ in range(3):
            await client.send(frame(b"question"))
            assert await client.read_frame() == b"from a filerom memory"


async def test_a_long_pipeline_is_answered_whole_and_in_order() -> None:
    async with serving(echo) as (_, port), clients(port, 1) as (client,):
        payloads = [b"%08d" % number for number in range(5 * BUFFERS_PER_SEND + 3)]
        await client.send(b"".join(map(frame, payloads)))
        assert [await client.read_frame() for _ in payloads] == payloads


# Turns


async def test_a_pipeline_lets_other_clients_have_their_turn() -> None:
    order: list[bytes] = []
    modest: list[Client] = []

    def note(request: memoryview) -> Reply:
        order.append(bytes(request[:1]))
        if len(order) == 50:
            modest[0].socket.sendall(frame(b"modest.."))
        return echo(request)

    async with (
        # Every request takes a tenth of a round.
        serving(note, clock=Ticking(ROUND_SECONDS / 10)) as (server, port),
        clients(port, 3) as (first, *greedy),
    ):
        modest.append(first)
        await until(lambda: len(server.connections) == 3)
        for client in greedy:
            await client.send(frame(b"greedy..") * 1000)
        for client in greedy:
            for _ in range(1000):
                assert await client.read_frame() == b"greedy.."
        assert await first.read_frame() == b"modest.."
    # The rest of that round, and perhaps another.
    assert order.index(b"m") < 50 + 2 * 10


async def test_a_pipeline_longer_than_a_read_takes_turns_until_its_end() -> None:
    payloads = [b"%0500d" % number for number in range(3 * SCRATCH_BYTES // 500)]
    async with (
        serving(echo, clock=Ticking(ROUND_SECONDS / 10)) as (server, port),
        clients(port, 1) as (client,),
    ):
        sending = asyncio.create_task(client.send(b"".join(map(frame, payloads))))
        for payload in payloads:
            assert await client.read_frame() == payload
        await sending
        assert buffers(server).bytes_in_use == 0


async def test_sending_much_lets_other_clients_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(100_000))
    pieces, events = 20, list[str]()
    send = FileSender.send

    def dispatch(request: memoryview) -> Reply:
        if request == b"question":
            events.append("question")
            return echo(request)
        size = struct.pack(">i", pieces * 100_000)
        return [size, *(FileSlice(io.FileIO(path), 0, 100_000) for _ in range(pieces))]

    # Half of the time for sending passes with each piece.
    clock = Ticking(SENDING_SECONDS / 2)
    async with serving(dispatch, clock=clock) as (server, port), clients(port, 2) as (other, hungry):
        await until(lambda: len(server.connections) == 2)

        def send_while_another_asks(*arguments: Any, **options: Any) -> int:
            if not events:
                other.socket.sendall(frame(b"question"))
            events.append("file")
            return send(*arguments, **options)

        monkeypatch.setattr(FileSender, "send", send_while_another_asks)
        await hungry.send(frame(b"everything"))
        assert len(await hungry.read_frame()) == pieces * 100_000
    assert events.count("file") >= pieces
    assert events.index("question") < 8


# Flow control


class Amplifier:
    """Returns large replies and counts the requests."""

    def __init__(self, reply_bytes: int) -> None:
        self.handled = 0
        self._reply = frame(bytes(reply_bytes))

    def __call__(self, request: memoryview) -> Reply:
        self.handled += 1
        return [self._reply]


async def test_requests_of_a_client_that_does_not_read_stay_in_the_kernel() -> None:
    handled: list[bytes] = []

    def dispatch(request: memoryview) -> Reply:
        handled.append(bytes(request))
        # More than all the buffers between the two sockets take.
        return [frame(b"x" * 50_000_000 if len(handled) == 1 else bytes(request))]

    async with serving(dispatch) as (server, port), clients(port, 1, receive_buffer_bytes=4096) as (client,):
        connection = await only_connection(server)
        await client.send(frame(b"the first"))
        await until(lambda: connection.busy)
        requests = [b"request %d" % number for number in range(50)]
        for request in requests:
            await client.send(frame(request))
            # Each is a piece of its own, which the server could read by itself.
            await asyncio.sleep(0)
        expected_bytes = len(b"".join(map(frame, requests)))
        await until(lambda: connection._transport.unread_bytes() == expected_bytes)
        assert len(handled) == 1, "replies pile up in memory for a client that does not read them"

        assert len(await client.read_frame()) == 50_000_000
        assert [await client.read_frame() for _ in requests] == requests


async def test_unsent_replies_of_one_client_are_bounded() -> None:
    amplify = Amplifier(10_000)
    async with serving(amplify) as (server, port), clients(port, 1, receive_buffer_bytes=4096) as (client,):
        connection = await only_connection(server)
        await client.send(frame(b"question") * 5000)
        await until(lambda: connection.busy)
        assert server._shared.unread_replies.bytes_in_use <= MAX_GATHERED_BYTES + 10_004
        for _ in range(5000):
            assert len(await client.read_frame()) == 10_000
        assert server._shared.unread_replies.bytes_in_use == 0


async def test_replies_of_all_clients_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limit = 8 << 20
    amplify = Amplifier(1 << 20)
    caplog.set_level(logging.WARNING)
    async with serving(amplify, max_unread_bytes=limit) as (server, port):

        def is_bounded_at_their_expense() -> bool:
            assert server._shared.unread_replies.bytes_in_use <= limit
            return "slow to read its responses" in caplog.text

        async with clients(port, 60, receive_buffer_bytes=4096) as silent:
            for client in silent:
                await client.send(frame(b"question") * 50)
            await until(is_bounded_at_their_expense)
            async with clients(port, 1) as (honest,):
                for _ in range(20):
                    await honest.send(frame(b"question"))
                    assert len(await honest.read_frame()) == 1 << 20
        await until(lambda: not server.connections)
        assert server._shared.unread_replies.bytes_in_use == 0


async def test_file_slices_do_not_count_as_memory(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(64 << 20))

    def dispatch(request: memoryview) -> Reply:
        return [struct.pack(">i", 64 << 20), FileSlice(io.FileIO(path), 0, 64 << 20)]

    async with (
        serving(dispatch, max_unread_bytes=1 << 20) as (server, port),
        clients(port, 5, receive_buffer_bytes=4096) as silent,
    ):
        for client in silent:
            await client.send(frame(b"fetch me"))
        await until(lambda: len(server._shared.unread_replies) == 5)
        assert server._shared.unread_replies.bytes_in_use == 0
        assert len(server.connections) == 5


async def test_files_are_sent_whole_to_a_slow_reader(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    path = tmp_path / "segment.log"
    path.write_bytes(content)

    def dispatch(request: memoryview) -> Reply:
        piece = FileSlice(io.FileIO(path), 100, len(content) - 100)
        header = struct.pack(">i", 5 + len(piece) + 4) + b"first"
        return [header, piece, b"last"]

    async with serving(dispatch) as (_, port), clients(port, 1, receive_buffer_bytes=4096) as (client,):
        await client.send(frame(b"fetch me") * 2)
        for _ in range(2):
            assert await client.read_frame() == b"first" + content[100:] + b"last"


# The end


async def test_closing_cancels_the_pending_request() -> None:
    cancelled: list[bool] = []

    def dispatch(request: memoryview) -> LateReply:
        return Deferred(on_cancel=lambda: cancelled.append(True))

    async with serving(dispatch) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"long poll"))
        connection = await only_connection(server)
        await until(lambda: connection.busy)
        connection.close("test")
        assert cancelled == [True]


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31 - 1])
async def test_an_absurd_size_closes_only_that_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(echo) as (server, port), clients(port, 2) as (good, bad):
        await bad.send(frame(b"answered") + struct.pack(">i", size) + b"x" * 100)
        assert await bad.read_frame() == b"answered"
        assert await bad.is_closed()
        assert "socket.request.max.bytes" in caplog.text
        await good.send(frame(b"still here"))
        assert await good.read_frame() == b"still here"
        assert len(server.connections) == 1


async def test_a_request_that_cannot_be_answered_closes_after_earlier_replies() -> None:
    def dispatch(request: memoryview) -> Reply:
        if bytes(request) == b"nonsense":
            raise CloseConnection("nonsense")
        return echo(request)

    async with serving(dispatch) as (_, port), clients(port, 1) as (client,):
        await client.send(frame(b"sensible") + frame(b"nonsense") + frame(b"never seen"))
        assert await client.read_frame() == b"sensible"
        assert await client.is_closed()


async def test_a_late_reply_may_be_to_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    late: LateReply = Deferred()
    async with serving(lambda request: late) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"whatever"))
        connection = await only_connection(server)
        await until(lambda: connection.busy)
        late.resolve(CloseConnection("this cannot be answered"))
        assert await client.is_closed()
        assert "this cannot be answered" in caplog.text


async def test_a_file_that_became_shorter_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"cut")

    def dispatch(request: memoryview) -> Reply:
        return [struct.pack(">i", 1000), FileSlice(io.FileIO(path), 0, 1000)]

    async with serving(dispatch) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"fetch me"))
        with pytest.raises(EOFError):
            await client.read_frame()
        await until(lambda: not server.connections)


async def test_closing_with_requests_in_the_queue_handles_no_more() -> None:
    handled = 0

    def dispatch(request: memoryview) -> Reply:
        nonlocal handled
        handled += 1
        return echo(request)

    async with (
        serving(dispatch, clock=Ticking(ROUND_SECONDS)) as (server, port),
        clients(port, 1) as (client,),
    ):
        connection = await only_connection(server)
        await client.send(frame(b"question") * 1000)
        await until(lambda: handled)
        connection.close("test")
        seen = handled
        for _ in range(10):
            await asyncio.sleep(0)
        assert handled == seen
        assert buffers(server).bytes_in_use == 0
