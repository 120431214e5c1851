"""Internal lag: frames that a worker has sent and that the tasks of other workers have not processed yet.

A worker knows the size of its frames, and the offsets that the receiving tasks have committed. The difference
is what waits, in bytes: it steers shuffling, slows the sources down, and names a task that falls behind.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.topologies.model.topology import Plan

# A task with less than this is not worth asking about.
IGNORED_BYTES = 64 * 1024
# A task lags far behind its peers with this much more than the median of them, for this long.
LAGGING_FACTOR = 4.0
LAGGING_BYTES = 1024 * 1024
LAGGING_SECONDS = 10.0


class Laggard(NamedTuple):
    """A task that is far behind the other tasks of its component."""

    component: str
    task: int
    lag_bytes: int
    median_bytes: float


class Lag:
    """The frames of one worker that wait, by receiving task. Owned by the worker's loop; not thread-safe."""

    def __init__(self, plan: Plan, limit_bytes: int) -> None:
        self._tasks = plan.tasks
        self._limit_bytes = limit_bytes
        self._downstream = {component: _downstream(plan, component) for component in plan.components}
        self._bytes: dict[int, int] = {}
        self._frames: dict[int, deque[tuple[int, int]]] = {}
        """By task: offset and size of each frame, the oldest first."""
        self._full: frozenset[str] = frozenset()
        self._since: dict[int, float] = {}

    def sent(self, task: int, size: int) -> None:
        """A frame is on its way to the log."""
        self._bytes[task] = self._bytes.get(task, 0) + size

    def written(self, task: int, size: int, offset: int) -> None:
        """A frame is in the log."""
        self._frames.setdefault(task, deque()).append((offset, size))

    def dropped(self, task: int, size: int) -> None:
        """A frame did not get into the log, because its transaction was aborted."""
        self._bytes[task] -= size

    def processed(self, task: int, offset: int) -> None:
        """A task has processed everything below an offset."""
        frames = self._frames.get(task)
        while frames and frames[0][0] < offset:
            self._bytes[task] -= frames.popleft()[1]

    def of(self, task: int) -> int:
        """The bytes that wait for a task of another worker."""
        return self._bytes.get(task, 0)

    def by_task(self) -> dict[int, int]:
        """The bytes that wait for each task that is worth asking about."""
        return {task: waiting for task, waiting in self._bytes.items() if waiting > IGNORED_BYTES}

    def held_back(self) -> frozenset[str]:
        """The components that must emit nothing now: one of their descendants has too much waiting.

        A component's own lag does not hold it back, and the graph has no cycles: the last of the components
        with too much waiting can always process it. Components are let go at half the limit.
        """
        totals = {
            component: sum(self._bytes.get(task, 0) for task in tasks)
            for component, tasks in self._tasks.items()
        }
        self._full = frozenset(
            component
            for component, total in totals.items()
            if total > (self._limit_bytes / 2 if component in self._full else self._limit_bytes)
        )
        if not self._full:
            return self._full
        return frozenset(component for component, later in self._downstream.items() if later & self._full)

    def laggards(self, now: float) -> list[Laggard]:
        """The tasks that have newly been far behind their peers for `LAGGING_SECONDS`."""
        found = []
        for component, tasks in self._tasks.items():
            behind = dict(_far_behind(self._bytes, tasks))
            for task, median in behind.items():
                since = self._since.setdefault(task, now)
                if now - since >= LAGGING_SECONDS:
                    # Reported once; again if it goes on for as long once more.
                    self._since[task] = now
                    found.append(Laggard(component, task, self._bytes[task], median))
            for task in tasks:
                if task not in behind:
                    self._since.pop(task, None)
        return found


def _far_behind(waiting: Mapping[int, int], tasks: Sequence[int]) -> Iterable[tuple[int, float]]:
    known = [waiting[task] for task in tasks if task in waiting]
    if len(known) < 2:
        return
    for task in tasks:
        own = waiting.get(task, 0)
        if own <= LAGGING_BYTES:
            continue
        median = statistics.median(waiting[peer] for peer in tasks if peer != task and peer in waiting)
        if own > LAGGING_FACTOR * median:
            yield task, median


def _downstream(plan: Plan, component: str) -> set[str]:
    """The components that tuples of this one can come to."""
    found: set[str] = set()
    waiting = [component]
    while waiting:
        for edge in plan.edges_from(waiting.pop()):
            if edge.target not in found:
                found.add(edge.target)
                waiting.append(edge.target)
    return found
