"""The order in which parked fetches are answered."""

import asyncio
from collections.abc import Iterator

import pytest

from millrace.replication.waiting import Woken
from millrace.timers import LoopTimers


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def woken(loop: asyncio.AbstractEventLoop) -> Woken:
    return Woken(loop, LoopTimers(loop))


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.sleep(0))


def test_every_fetch_is_answered_on_the_next_turn(loop: asyncio.AbstractEventLoop, woken: Woken) -> None:
    answered: list[int] = []
    for number in range(5):
        woken.add(lambda number=number: answered.append(number))
    assert answered == []
    turn(loop)
    assert answered == [0, 1, 2, 3, 4]


def test_one_fetch_may_be_answered_at_once(loop: asyncio.AbstractEventLoop, woken: Woken) -> None:
    answered: list[int] = []
    woken.answer_next()
    for number in range(3):
        woken.add(lambda number=number: answered.append(number))
    woken.answer_next()
    assert answered == [0]
    turn(loop)
    assert answered == [0, 1, 2]


def test_answers_are_never_nested(loop: asyncio.AbstractEventLoop, woken: Woken) -> None:
    depths: list[int] = []
    depth = 0

    def answer() -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if len(depths) < 2000:
            woken.add(answer)
            woken.answer_next()
        depth -= 1

    woken.add(answer)
    woken.answer_next()
    while len(depths) < 2000:
        turn(loop)
    assert set(depths) == {1}


def test_a_failing_answer_is_logged_and_does_not_affect_others(
    loop: asyncio.AbstractEventLoop, woken: Woken, caplog: pytest.LogCaptureFixture
) -> None:
    answered: list[str] = []

    def fail() -> None:
        raise RuntimeError("the file is not what it was")

    woken.add(fail)
    woken.add(lambda: answered.append("second"))
    woken.answer_next()
    assert "the file is not what it was" in caplog.text
    turn(loop)
    assert answered == ["second"]
