"""Groupings at run time: choosing the tasks that receive a tuple."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, Protocol

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.grouping import Grouping, Kind
from millrace.topologies.model.streams import Stream
from millrace.topologies.runtime.hashing import stable_hash

# Keys whose task is remembered, per emitting task and edge.
_MEMO_KEYS = 10_000
# A task this many times as loaded as the least loaded one is passed over by shuffling.
_OVERLOADED = 2.0
_IDLE_BYTES = 64 * 1024

Load = Callable[[int], float]
"""The bytes that wait for a task."""


class Chooser(Protocol):
    """Chooses the receiving tasks of one edge for one emitting task."""

    def choose(self, values: Sequence[Any]) -> Sequence[int]: ...


def new_chooser(
    grouping: Grouping,
    stream: Stream,
    source: str,
    source_task: int,
    targets: Sequence[int],
    local: Collection[int],
    load: Load = lambda task: 0.0,
) -> Chooser:
    """The chooser of a grouping; `targets` in ascending order, `local` those in the emitter's worker."""
    here = [task for task in targets if task in local]
    match grouping.kind:
        case Kind.SHUFFLE:
            return Shuffle(targets, load)
        case Kind.LOCAL_OR_SHUFFLE | Kind.NONE:
            return Shuffle(here or targets, load)
        case Kind.FIELDS:
            return Fields(stream, grouping.by, targets)
        case Kind.PARTIAL_KEY:
            return PartialKey(stream, grouping.by, targets)
        case Kind.ALL:
            return Fixed(tuple(targets))
        case Kind.GLOBAL:
            return Fixed((min(targets),))
        case Kind.CUSTOM:
            return Custom(grouping, stream, source, source_task, targets)
        case Kind.DIRECT:
            return Direct(source, stream.name)
    raise AssertionError(f"a grouping of kind {grouping.kind}")


class Shuffle:
    """Round robin from a random start: even counts. A task with far more waiting than others is skipped."""

    __slots__ = ("_load", "_next", "_targets")

    def __init__(self, targets: Sequence[int], load: Load) -> None:
        self._targets = [(task,) for task in targets]
        self._load = load
        self._next = random.randrange(len(targets))

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        targets = self._targets
        number = self._next
        self._next = number + 1 if number + 1 < len(targets) else 0
        chosen = targets[number]
        if len(targets) > 1 and self._load(chosen[0]) > _IDLE_BYTES:
            return self._lighter(chosen)
        return chosen

    def _lighter(self, chosen: tuple[int]) -> tuple[int]:
        least = min(self._targets, key=lambda target: self._load(target[0]))
        if self._load(chosen[0]) > _OVERLOADED * self._load(least[0]):
            return least
        return chosen


class Fields:
    """Equal values of some fields go to the same task."""

    __slots__ = ("_key", "_memo", "_targets")

    def __init__(self, stream: Stream, names: Sequence[str], targets: Sequence[int]) -> None:
        self._key = itemgetter(*(stream.positions[name] for name in names))
        self._targets = [(task,) for task in targets]
        self._memo: dict[Any, tuple[int]] = {}

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        key = self._key(values)
        try:
            return self._memo[key]
        except KeyError:
            chosen = self._targets[stable_hash(key) % len(self._targets)]
            if len(self._memo) >= _MEMO_KEYS:
                self._memo.clear()
            self._memo[key] = chosen
            return chosen
        except TypeError:
            # A list or a dictionary cannot be remembered.
            return self._targets[stable_hash(key) % len(self._targets)]


class PartialKey:
    """A key has two candidate tasks; the one this emitter has sent less to receives the tuple."""

    __slots__ = ("_key", "_sent", "_targets")

    def __init__(self, stream: Stream, names: Sequence[str], targets: Sequence[int]) -> None:
        self._key = itemgetter(*(stream.positions[name] for name in names))
        self._targets = list(targets)
        self._sent = dict.fromkeys(targets, 0)

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        number = stable_hash(self._key(values))
        count = len(self._targets)
        first = self._targets[number % count]
        second = self._targets[stable_hash(str(number)) % count]
        chosen = first if self._sent[first] <= self._sent[second] else second
        self._sent[chosen] += 1
        return (chosen,)


class Fixed:
    """The same tasks for every tuple."""

    __slots__ = ("_targets",)

    def __init__(self, targets: tuple[int, ...]) -> None:
        self._targets = targets

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return self._targets


class Custom:
    """The user's own choice."""

    __slots__ = ("_chooser", "_source_task", "_stream", "_targets")

    def __init__(
        self, grouping: Grouping, stream: Stream, source: str, source_task: int, targets: Sequence[int]
    ) -> None:
        self._chooser = copy.deepcopy(grouping.chooser)
        assert self._chooser is not None
        self._chooser.prepare(source, stream.name, list(targets))
        self._source_task = source_task
        self._targets = frozenset(targets)
        self._stream = f"{source}, stream {stream.name}"

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        assert self._chooser is not None
        chosen = self._chooser.choose_tasks(self._source_task, values)
        strangers = [task for task in chosen if task not in self._targets]
        if strangers:
            raise TopologyError(
                f"the custom grouping of {self._stream} chose task {strangers[0]}; "
                f"the receiving tasks are {sorted(self._targets)}"
            )
        return chosen


class Direct:
    """A direct stream: the emitter must name the task."""

    __slots__ = ("_source", "_stream")

    def __init__(self, source: str, stream: str) -> None:
        self._source = source
        self._stream = stream

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        raise TopologyError(
            f"{self._source} emits to the direct stream {self._stream} without direct_task; "
            "name the receiving task"
        )
