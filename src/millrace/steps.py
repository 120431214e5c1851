"""Turns on the event loop: long work is done in steps, and other clients are served in between.

Work that may be long is a generator, `Steps`: it yields after each small step and returns its result. Work
that fits one turn is done at once, without a task; the rest of longer work goes on in a coroutine. Work that
is a coroutine already, because it waits for a disk, ends its steps with `Turn.end_step`.
State may change between two steps, so each step decides by the state that it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from time import perf_counter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Steps: TypeAlias = Generator[None, None, T]

TURN_SECONDS = 0.002


class Done(NamedTuple, Generic[T]):
    """Work that has come to its end."""

    result: T


def take_turn(steps: Steps[T]) -> Done[T] | None:
    """Do as many steps as fit one turn; None if there is more to do."""
    turn_ends = perf_counter() + TURN_SECONDS
    try:
        while True:
            next(steps)
            if perf_counter() > turn_ends:
                return None
    except StopIteration as end:
        return Done(end.value)


async def finish(steps: Steps[T]) -> T:
    """Do all steps, turn by turn."""
    while (done := take_turn(steps)) is None:
        await asyncio.sleep(0)
    return done.result


class Turn:
    """The turn of a coroutine."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = perf_counter() + TURN_SECONDS

    async def end_step(self) -> None:
        """Let others have their turn, if this one is over."""
        if perf_counter() > self._ends:
            await asyncio.sleep(0)
            self._ends = perf_counter() + TURN_SECONDS


def finish_at_once(steps: Steps[T]) -> T:
    """Do all steps in one go, where nothing else has to wait for them."""
    while (done := take_turn(steps)) is None:
        pass
    return done.result


def slices(elements: list[T], size: int = 500) -> Iterator[list[T]]:
    """The elements in lists of at most `size`: for work whose elements are too small to be a step each."""
    if len(elements) <= size:
        yield elements
        return
    for start in range(0, len(elements), size):
        yield elements[start : start + size]


def each(elements: Iterable[T], function: Callable[[T], U]) -> Steps[list[U]]:
    """The results of a function for each element, one step each."""
    results = []
    for element in elements:
        results.append(function(element))
        yield
    return results
