"""Listeners: addresses, limits, idle clients, and a system that runs out of files."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import pytest

from millrace.clock import Clock
from millrace.net.connection import Connection
from millrace.net.replies import Dispatch
from millrace.net.server import ACCEPT_PAUSE_MS, IDLE_SWEEP_MS, Server
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.timers import LoopTimers

from .serving import MAX_FRAME, Client, clients, echo, frame, only_connection, serving, until


async def test_more_connections_than_allowed_are_refused() -> None:
    async with serving(echo, max_connections=2) as (server, port), clients(port, 3) as (first, _, third):
        assert await third.is_closed()
        assert len(server.connections) == 2
        await first.send(frame(b"still served"))
        assert await first.read_frame() == b"still served"


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_idle_seconds=600) as (server, port),
        clients(port, 2) as (idle, busy),
    ):
        await until(lambda: len(server.connections) == 2)
        for _ in range(20):
            timers.advance(599_000 // 20)
            await busy.send(frame(b"busy busy"))
            assert await busy.read_frame() == b"busy busy"
        assert len(server.connections) == 2
        timers.advance(IDLE_SWEEP_MS + 1000)
        assert await idle.is_closed()
        assert len(server.connections) == 1
        await busy.send(frame(b"still here"))
        assert await busy.read_frame() == b"still here"


async def test_connections_stay_open_without_a_limit_on_idling() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with (
        serving(echo, clock=clock, timers=timers, max_idle_seconds=-1) as (server, port),
        clients(port, 1),
    ):
        await only_connection(server)
        timers.advance(100_000_000)
        assert len(server.connections) == 1


async def test_running_out_of_files_pauses_accepting_and_serves_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with serving(echo, clock=clock, timers=timers) as (server, port), clients(port, 1) as (early,):
        await only_connection(server)
        listening = server._listening[0]
        failures = [OSError(errno.EMFILE, "Too many open files")]

        class Exhausted:
            def accept(self) -> object:
                if failures:
                    raise failures.pop()
                return listening.accept()

            def fileno(self) -> int:
                return listening.fileno()

        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        loop.add_reader(listening.fileno(), server._accept, Exhausted(), 0)
        late = await Client.connect(port)
        await until(lambda: not failures)
        await early.send(frame(b"still served"))
        assert await early.read_frame() == b"still served"
        assert len(server.connections) == 1
        assert "ulimit -n" in caplog.text
        assert caplog.records[-1].levelno == logging.ERROR
        timers.advance(ACCEPT_PAUSE_MS)
        await late.send(frame(b"my turn now"))
        assert await late.read_frame() == b"my turn now"
        late.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["", "::"])
async def test_every_interface_means_both_families_of_addresses(host: str) -> None:
    seen: list[str] = []

    def new_client(connection: Connection, client_host: str, index: int) -> Dispatch:
        seen.append(client_host)
        return echo

    loop = asyncio.get_running_loop()
    server = Server(
        new_client,
        loop=loop,
        clock=Clock(),
        timers=LoopTimers(loop),
        max_frame_bytes=MAX_FRAME,
        max_request_bytes=MAX_FRAME,
        max_unread_bytes=MAX_FRAME,
        max_connections=10,
        max_idle_seconds=60,
    )
    _, port = server.bind(host, 0)
    server.start()
    for address in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(frame(b"over here"))
        assert await reader.readexactly(13) == frame(b"over here")
        writer.close()
    assert seen == ["127.0.0.1", "::1"]
    server.stop()


async def test_stopping_leaves_no_timers_and_no_connections() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with serving(echo, clock=clock, timers=timers) as (server, port), clients(port, 1) as (client,):
        await only_connection(server)
        server.stop()
        assert await client.is_closed()
        assert not server.connections
        assert len(timers) == 0
