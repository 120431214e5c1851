"""Turns: short work is done at once, long work lets other work run in between."""

import asyncio
from time import thread_time

import pytest

from millrace.steps import TURN_SECONDS, Done, Steps, each, finish, finish_at_once, slices, take_turn


def work(seconds: float, steps: int) -> Steps[str]:
    """Work that keeps the CPU busy for this long in each step."""
    for _ in range(steps):
        ends = thread_time() + seconds
        while thread_time() < ends:
            pass
        yield
    return "done"


def test_short_work_is_done_in_one_turn() -> None:
    assert take_turn(work(0, 3)) == Done("done")


def test_long_work_stops_at_the_end_of_a_turn() -> None:
    steps = work(TURN_SECONDS, 3)
    assert take_turn(steps) is None
    assert finish_at_once(steps) == "done"


def test_other_work_runs_between_the_turns_of_long_work() -> None:
    async def count_turns() -> int:
        turns = 0
        task = asyncio.create_task(finish(work(TURN_SECONDS, 5)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert task.result() == "done"
        return turns

    assert asyncio.run(count_turns()) >= 5


def test_errors_of_a_step_are_raised() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("in a step")

    with pytest.raises(ValueError, match="in a step"):
        take_turn(failing())


def test_each_element_is_a_step() -> None:
    steps = each([1, 2, 3], str)
    assert sum(1 for _ in steps) == 3
    assert finish_at_once(each([1, 2, 3], str)) == ["1", "2", "3"]


def test_slices_hold_every_element_once() -> None:
    assert list(slices([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(slices([1, 2], 2)) == [[1, 2]]
    assert list(slices([], 2)) == [[]]
