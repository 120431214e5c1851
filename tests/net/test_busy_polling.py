"""The broker stays awake between requests that follow closely, and only then."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from millrace.clock import Clock
from millrace.net.busy_polling import BusyPolling
from millrace.testing import Broker

from .serving import echo, serving

PATIENCE = 200e-6


class World(Clock):
    """A loop that a test turns, a clock that it sets, and other processes that want the core."""

    __slots__ = ("_soon", "now", "others_take", "yields")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.yields = 0
        self.others_take = 0.0
        self._soon: deque[Callable[[], None]] = deque()
        monkeypatch.setattr(os, "sched_yield", self._yield)

    def monotonic(self) -> float:
        return self.now

    def _yield(self) -> None:
        self.yields += 1
        self.now += self.others_take

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    @property
    def sleeps(self) -> bool:
        """Whether the loop sleeps when it looks for events next."""
        return not self._soon

    def turn(self) -> None:
        for _ in range(len(self._soon)):
            self._soon.popleft()()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def polling(world: World) -> BusyPolling:
    return BusyPolling(world, world, PATIENCE)


def request_after(world: World, polling: BusyPolling, seconds: float) -> None:
    world.now += seconds
    polling.handled()


def test_a_lone_request_lets_the_loop_sleep(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    assert world.sleeps


def test_requests_far_apart_let_the_loop_sleep(world: World, polling: BusyPolling) -> None:
    for _ in range(100):
        request_after(world, polling, 3 * PATIENCE)
        assert world.sleeps


def test_requests_that_follow_closely_keep_the_loop_awake(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    for _ in range(100):
        # The time between requests while the broker still sleeps in between.
        request_after(world, polling, 1.5 * PATIENCE)
        world.turn()
        assert not world.sleeps


def test_polling_ends_when_no_request_follows(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    world.now += PATIENCE / 2
    world.turn()
    assert not world.sleeps
    world.now += PATIENCE
    world.turn()
    assert world.sleeps


def test_every_turn_without_a_request_yields_the_core(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    assert world.yields == 0
    for turn in range(1, 10):
        world.turn()
        assert world.yields == turn


def test_polling_ends_when_other_processes_want_the_core(world: World, polling: BusyPolling) -> None:
    world.others_take = 3e-3
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    world.turn()
    assert world.yields == 1
    assert world.sleeps


def test_without_patience_the_loop_always_sleeps(world: World) -> None:
    polling = BusyPolling(world, world, 0.0)
    for _ in range(10):
        polling.handled()
    assert world.sleeps


def test_on_a_system_that_cannot_yield_the_loop_always_sleeps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_yield")
    polling = BusyPolling(world, world, PATIENCE)
    for _ in range(10):
        polling.handled()
    assert world.sleeps


class SlowClock(Clock):
    """A clock on which every two looks, and so every two requests, are 10 ms apart."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 0.01
        return self._seconds


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The times at which a broker in this process yielded the core."""
    moments: list[float] = []
    real = os.sched_yield

    def counted() -> None:
        moments.append(time.monotonic())
        real()

    monkeypatch.setattr(os, "sched_yield", counted)
    yield moments


async def request(bootstrap: str, times: int) -> None:
    """Send ApiVersions requests, each after the response to the one before it."""
    host, port = bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(times):
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
    writer.close()


async def test_a_broker_polls_for_a_client_that_sends_request_after_request(yields: list[float]) -> None:
    with Broker({"millrace.busy.poll.us": "10000"}) as broker:
        await request(broker.bootstrap, times=20)
        async with asyncio.timeout(10):
            while not yields:
                await asyncio.sleep(0)


async def test_a_server_sleeps_between_occasional_requests(yields: list[float]) -> None:
    async with serving(echo, clock=SlowClock(), busy_poll_seconds=0.001) as (_, port):
        await request(f"127.0.0.1:{port}", times=10)
        assert not yields


async def test_a_server_polls_between_requests_that_are_close(yields: list[float]) -> None:
    async with serving(echo, clock=SlowClock(), busy_poll_seconds=0.1) as (_, port):
        await request(f"127.0.0.1:{port}", times=10)
        async with asyncio.timeout(30):
            while not yields:
                await asyncio.sleep(0)
