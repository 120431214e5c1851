"""Held tuples as state, in exactly-once mode.

A window or a batch keeps tuples longer than a transaction lasts. Their inputs are committed, so the tuples
themselves must survive: each is a key of a changelog, set when the tuple comes and deleted when it leaves.
After a restart or an abort they are delivered to the bolt again.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple

from millrace.topologies.model.bolts import BatchingBolt
from millrace.topologies.model.topology import Plan
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.model.windows import WindowedBolt

_NEXT = "next"
_NOTES = "notes"


def holds_state(plan: Plan, component: str) -> bool:
    """Whether the tuples that a component holds are kept as state."""
    bolt = plan.components[component].component
    return plan.guarantee == "exactly-once" and (
        issubclass(bolt, WindowedBolt)
        # A bolt with a process of its own may emit there, which must not happen twice.
        or (issubclass(bolt, BatchingBolt) and bolt.process is BatchingBolt.process)
    )


class Held(NamedTuple):
    """A tuple that a bolt holds, and its number, which grows with every tuple."""

    number: int
    tup: Tuple
    timestamp: int


class HeldTuples:
    """The held tuples of one task. Owned by the worker's loop; not thread-safe."""

    def __init__(self, plan: Plan, state: MutableMapping[Any, Any], max_fails: int) -> None:
        self._plan = plan
        self._state = state
        self._max_fails = max_fails
        self._numbers: dict[int, Held] = {}
        """By the tuple's id; the entry keeps the tuple alive, so its id stays its own."""
        self._fails: dict[int, int] = {}

    def add(self, tup: Tuple, timestamp: int = 0) -> int:
        """Keep a tuple: its input is done with, whatever becomes of the tuple."""
        number: int = self._state.get(_NEXT, 0)
        self._state[_NEXT] = number + 1
        self._state[number] = [timestamp, tup.component, tup.stream, tup.task, list(tup.values)]
        self._numbers[id(tup)] = Held(number, tup, timestamp)
        units, tup.units = tup.units, ()
        for unit in units:
            unit.release()
        return number

    def remove(self, tup: Tuple) -> None:
        """A tuple has left the bolt."""
        held = self._numbers.pop(id(tup), None)
        if held is not None:
            self._state.pop(held.number, None)
            self._fails.pop(held.number, None)

    def number_of(self, tup: Tuple) -> int:
        return self._numbers[id(tup)].number

    def note_failure(self, tup: Tuple) -> None:
        held = self._numbers[id(tup)]
        self._fails[held.number] = self._fails.get(held.number, 0) + 1

    def restore(self) -> Iterator[Held]:
        """The tuples of the state, in the order they came, except those that have failed too often."""
        self._numbers.clear()
        for number in sorted(key for key in self._state if isinstance(key, int)):
            timestamp, component, stream, task, values = self._state[number]
            positions = self._plan.components[component].streams[stream].positions
            held = Held(number, Tuple(values, positions, component, stream, task), timestamp)
            self._numbers[id(held.tup)] = held
            if self._fails.get(number, 0) <= self._max_fails:
                yield held

    def given_up(self) -> list[Tuple]:
        """The tuples that have failed too often, which are removed."""
        hopeless = [
            held.tup for held in self._numbers.values() if self._fails.get(held.number, 0) > self._max_fails
        ]
        for tup in hopeless:
            self.remove(tup)
        return hopeless

    @property
    def notes(self) -> Any:
        """The bolt's own position among its tuples, kept with them."""
        return self._state.get(_NOTES)

    @notes.setter
    def notes(self, value: Any) -> None:
        self._state[_NOTES] = value
