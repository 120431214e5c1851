"""The broker stays awake between requests that follow closely, and only then."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from millrace.net import busy_polling
from millrace.net.busy_polling import BusyPolling
from millrace.testing import Broker

PATIENCE = 200e-6


class World:
    """A loop that is turned by hand, a clock that stands still, and others who want the core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.turns_of_others = 0
        self.others_take = 0.0
        self._soon: deque[Callable[[], None]] = deque()
        monkeypatch.setattr(busy_polling, "monotonic", lambda: self.now)
        monkeypatch.setattr(os, "sched_yield", self._yield)

    def _yield(self) -> None:
        self.turns_of_others += 1
        self.now += self.others_take

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    @property
    def sleeps(self) -> bool:
        """Whether the loop's next look for events waits for one."""
        return not self._soon

    def turn(self) -> None:
        for _ in range(len(self._soon)):
            self._soon.popleft()()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def polling(world: World) -> BusyPolling:
    return BusyPolling(world, PATIENCE)


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


def test_the_loop_stays_awake_after_requests_that_follow_closely(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    for _ in range(100):
        # As long as it takes while the broker still sleeps in between.
        request_after(world, polling, 1.5 * PATIENCE)
        world.turn()
        assert not world.sleeps


def test_patience_ends(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    world.now += PATIENCE / 2
    world.turn()
    assert not world.sleeps
    world.now += PATIENCE
    world.turn()
    assert world.sleeps


def test_others_have_the_core_at_every_turn_without_a_request(world: World, polling: BusyPolling) -> None:
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    assert world.turns_of_others == 0
    for turn in range(1, 10):
        world.turn()
        assert world.turns_of_others == turn


def test_a_core_that_others_want_is_left_to_them(world: World, polling: BusyPolling) -> None:
    world.others_take = 3e-3
    request_after(world, polling, 1)
    request_after(world, polling, PATIENCE)
    world.turn()
    world.turn()
    assert world.turns_of_others == 1
    assert world.sleeps


def test_no_patience_always_sleeps(world: World) -> None:
    polling = BusyPolling(world, 0.0)
    for _ in range(10):
        polling.handled()
    assert world.sleeps


def test_a_system_without_yielding_always_sleeps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_yield")
    polling = BusyPolling(world, PATIENCE)
    for _ in range(10):
        polling.handled()
    assert world.sleeps


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """When a broker of this process let others go first."""
    moments: list[float] = []
    real = os.sched_yield

    def counted() -> None:
        moments.append(time.monotonic())
        real()

    monkeypatch.setattr(os, "sched_yield", counted)
    yield moments


async def ask(bootstrap: str, times: int, apart: float) -> None:
    """ApiVersions over and over, each once the one before it is answered."""
    host, port = bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(times):
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        await asyncio.sleep(apart)
    writer.close()


async def test_a_broker_looks_out_for_a_client_that_asks_and_asks(yields: list[float]) -> None:
    with Broker({"millrace.busy.poll.us": "10000"}) as broker:
        await ask(broker.bootstrap, times=20, apart=0)
        async with asyncio.timeout(10):
            while not yields:
                await asyncio.sleep(0)


async def test_a_broker_that_is_asked_now_and_then_sleeps(yields: list[float]) -> None:
    with Broker({"millrace.busy.poll.us": "1000"}) as broker:
        await ask(broker.bootstrap, times=10, apart=0.01)
        assert not yields
