"""Memory for requests stays bounded whatever clients do, and clients that behave get theirs."""

from __future__ import annotations

import asyncio
import struct

import pytest

from millrace.deferred import Deferred
from millrace.net.buffers import FIRST_BYTES, POOLED_BYTES, SCRATCH_BYTES, SMALL_FRAME_BYTES
from millrace.net.connection import Connection
from millrace.net.frame_receiver import MAX_SILENCE_SECONDS, MAX_SLOW_SECONDS
from millrace.net.replies import LateReply, Reply
from millrace.net.server import STALLED_SWEEP_MS, Server
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers

from .serving import MAX_FRAME, Client, buffers, clients, echo, frame, serving, until

CLAIM = struct.pack(">i", MAX_FRAME)


def holding(server: Server) -> list[Connection]:
    """Connections in the middle of a frame."""
    return [connection for connection in server.connections if connection._receiver.partial is not None]


def received(server: Server) -> int:
    """The bytes of unfinished frames that have arrived."""
    partials = [connection._receiver.partial for connection in holding(server)]
    return sum(partial.filled for partial in partials if partial is not None)


async def test_no_limit_on_memory_is_kafkas_minus_one() -> None:
    async with serving(echo, max_request_bytes=-1) as (_, port), clients(port, 1) as (client,):
        payload = b"x" * (4 << 20)
        await client.send(frame(payload))
        assert await client.read_frame() == payload


async def test_hundreds_of_claimed_frames_take_hardly_any_memory() -> None:
    count = 300
    async with serving(echo, max_request_bytes=8 << 20) as (server, port), clients(port, count) as silent:
        for client in silent:
            await client.send(struct.pack(">i", 300_000) + b"ten bytes.")
        await until(lambda: len(holding(server)) == count)
        assert buffers(server).bytes_in_use <= count * FIRST_BYTES
        async with clients(port, 1) as (honest,):
            payload = b"x" * 600_000
            await honest.send(frame(payload))
            assert await honest.read_frame() == payload
        assert len(holding(server)) == count


async def test_memory_is_bounded_and_every_large_request_gets_through() -> None:
    limit, peak = 4 * POOLED_BYTES, 0

    def dispatch(request: memoryview) -> Reply:
        return [frame(b"done")]

    async with serving(dispatch, max_request_bytes=limit) as (server, port), clients(port, 12) as large:
        payload = frame(b"x" * (3 * POOLED_BYTES))

        async def upload(client: Client) -> None:
            await client.send(payload)
            assert await client.read_frame() == b"done"

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, buffers(server).bytes_in_use)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*map(upload, large))
        watcher.cancel()
        # One frame may exceed the limit; each may have read its first bytes.
        assert limit / 2 < peak <= limit + len(payload) + 12 * SCRATCH_BYTES
        assert buffers(server).bytes_in_use == 0


HOGS = 20
HOG_BYTES = 100_000
LIMIT = HOGS * HOG_BYTES


async def fill_memory(server: Server, hogs: list[Client]) -> None:
    """Let all memory be held by frames that lack a byte, and the right to exceed the limit by another."""
    *modest, greedy = hogs
    for hog in modest:
        await hog.send(struct.pack(">i", HOG_BYTES) + bytes(HOG_BYTES - 1))
    await until(lambda: buffers(server).bytes_in_use == len(modest) * HOG_BYTES)
    await greedy.send(CLAIM + bytes(HOG_BYTES))
    await until(lambda: buffers(server).bytes_in_use > LIMIT)


async def test_stalled_clients_are_closed_all_at_once_when_memory_is_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_request_bytes=LIMIT) as (server, port),
        clients(port, HOGS + 1) as hogs,
        clients(port, 1) as (large,),
    ):
        await fill_memory(server, hogs)
        payload = b"y" * POOLED_BYTES
        upload = asyncio.create_task(large.send(frame(payload)))
        await until(lambda: any(connection._receiver.is_waiting for connection in server.connections))
        timers.advance(int(MAX_SILENCE_SECONDS * 1000) - STALLED_SWEEP_MS)
        assert len(server.connections) == HOGS + 2, "they are not stalled yet"
        timers.advance(2 * STALLED_SWEEP_MS)
        assert len(server.connections) == 1
        assert caplog.text.count("stalls in a request while memory is short") == HOGS + 1
        assert await large.read_frame() == payload
        await upload


async def test_a_connection_that_waits_for_memory_does_not_keep_the_loop_busy() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_request_bytes=LIMIT) as (server, port),
        clients(port, HOGS + 1) as hogs,
        clients(port, 1) as (large,),
    ):
        await fill_memory(server, hogs)
        await large.send(frame(b"y" * HOG_BYTES))
        await until(lambda: any(connection._receiver.is_waiting for connection in server.connections))
        (waiting,) = [connection for connection in server.connections if connection._receiver.is_waiting]
        # The loop reports once more that it is readable.
        await until(lambda: not waiting._is_reading)
        assert len(buffers(server)._waiting) == 1


async def test_silent_clients_stay_while_nothing_waits_for_memory() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_request_bytes=LIMIT) as (server, port),
        clients(port, 1) as (silent,),
    ):
        payload = b"x" * POOLED_BYTES
        await silent.send(frame(payload)[:1000])
        await until(lambda: holding(server))
        timers.advance(60_000)
        await silent.send(frame(payload)[1000:])
        assert await silent.read_frame() == payload


async def test_clients_that_drip_are_closed_when_memory_is_short() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_request_bytes=POOLED_BYTES) as (server, port),
        clients(port, 2) as dripping,
        clients(port, 1) as (large,),
    ):
        # The first takes all memory, the second the right to exceed the limit.
        for client in dripping:
            await client.send(CLAIM + bytes(HOG_BYTES))
        await until(lambda: received(server) == 2 * HOG_BYTES)
        payload = b"y" * POOLED_BYTES
        upload = asyncio.create_task(large.send(frame(payload)))
        await until(lambda: any(connection._receiver.is_waiting for connection in server.connections))
        for _ in range(int(MAX_SLOW_SECONDS)):
            before = received(server)
            for client in dripping:
                await client.send(b"x")
            while received(server) < before + 2:
                await asyncio.sleep(0)
            timers.advance(900)
        assert len(server.connections) == 3, "they are not slow yet"
        timers.advance(700)
        assert len(server.connections) == 1
        assert await large.read_frame() == payload
        await upload


async def test_small_requests_are_served_while_memory_is_short() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_request_bytes=LIMIT) as (server, port),
        clients(port, HOGS + 1) as hogs,
        clients(port, 1) as (small,),
    ):
        await fill_memory(server, hogs)
        await small.send(frame(b"small one"))
        assert await small.read_frame() == b"small one"
        # In two pieces it needs memory of its own.
        request = frame(b"x" * SMALL_FRAME_BYTES)
        await small.send(request[:50])
        await until(lambda: len(holding(server)) == HOGS + 2)
        await small.send(request[50:])
        assert await small.read_frame() == request[4:]
        assert buffers(server).is_short


async def test_requests_behind_a_pending_one_count() -> None:
    first: LateReply = Deferred()

    def dispatch(request: memoryview) -> Reply | LateReply:
        return first if request == b"pending." else echo(request)

    async with serving(dispatch) as (server, port), clients(port, 1) as (client,):
        await client.send(frame(b"pending.") + frame(b"waits...") * 1000)
        await until(lambda: buffers(server).bytes_in_use > 0)
        assert buffers(server).bytes_in_use <= SCRATCH_BYTES
        first.resolve([frame(b"answered")])
        assert await client.read_frame() == b"answered"
        for _ in range(1000):
            assert await client.read_frame() == b"waits..."
        assert buffers(server).bytes_in_use == 0
