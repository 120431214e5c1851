"""Connections that pipeline requests take turns, in rounds of bounded length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from millrace.clock import Clock
from millrace.net.turns import MIN_TURN_SECONDS, ROUND_SECONDS, Turns


class Time(Clock):
    """A clock that a test moves by fractions of a millisecond."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class World:
    """A loop that a test turns, and a log of the turns that connections took."""

    def __init__(self) -> None:
        self.clock = Time()
        self.turns = Turns(self, self.clock)
        self.log: list[str] = []
        self._soon: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    @property
    def sleeps(self) -> bool:
        return not self._soon

    def round(self) -> list[str]:
        """One turn of the loop; returns the connections that had theirs."""
        self.log.clear()
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        return self.log.copy()


class Pipelining:
    """A connection with many requests, each of which takes the same time."""

    def __init__(self, world: World, name: str, requests: int, seconds: float = 0.000_05) -> None:
        self.world = world
        self.name = name
        self.requests = requests
        self.seconds = seconds
        world.turns.join(self)

    def take_turn(self, ends: float) -> None:
        self.world.log.append(self.name)
        while self.requests:
            self.requests -= 1
            self.world.clock.now += self.seconds
            if self.world.clock.now >= ends:
                break
        if self.requests:
            self.world.turns.join(self)


@pytest.fixture
def world() -> World:
    return World()


def test_a_lone_connection_gets_the_whole_round(world: World) -> None:
    pipelining = Pipelining(world, "lone", 100)
    assert world.round() == ["lone"]
    assert world.clock.now == pytest.approx(ROUND_SECONDS, rel=0.1)
    assert pipelining.requests == pytest.approx(60, abs=2)
    while pipelining.requests:
        assert world.round() == ["lone"]
    assert world.sleeps


def test_a_round_is_as_long_for_many_connections_as_for_one(world: World) -> None:
    for number in range(200):
        Pipelining(world, f"{number}", 100)
    for _ in range(50):
        began = world.clock.now
        world.round()
        assert world.clock.now - began <= ROUND_SECONDS + MIN_TURN_SECONDS


def test_every_connection_has_its_turn_before_any_has_another(world: World) -> None:
    names = [f"{number}" for number in range(50)]
    for name in names:
        Pipelining(world, name, 100)
    log: list[str] = []
    while len(log) < 3 * len(names):
        log += world.round()
    assert log[:150] == 3 * names


def test_a_slow_request_ends_the_round(world: World) -> None:
    Pipelining(world, "slow", 5, seconds=0.1)
    Pipelining(world, "quick", 5)
    assert world.round() == ["slow"]
    assert world.round() == ["quick", "slow"]


def test_turns_are_shorter_while_others_wait(world: World) -> None:
    assert world.turns.turn_seconds() == ROUND_SECONDS
    for number in range(3):
        Pipelining(world, f"{number}", 100)
    assert world.turns.turn_seconds() == pytest.approx(ROUND_SECONDS / 4)
    for number in range(100):
        Pipelining(world, f"{number}", 100)
    assert world.turns.turn_seconds() == MIN_TURN_SECONDS


def test_a_connection_that_fails_does_not_stop_the_others(world: World) -> None:
    class Failing:
        def take_turn(self, ends: float) -> None:
            raise RuntimeError("a bug")

    world.turns.join(Failing())
    Pipelining(world, "other", 1)
    with pytest.raises(RuntimeError):
        world.round()
    assert world.round() == ["other"]
    assert world.sleeps
