"""Figures of all topologies, added up from the records of their workers, over Storm's windows of time."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from millrace.topologies.runtime.figures import ErrorFigures, TaskFigures, WorkerFigures, decode_figures

logger = logging.getLogger(__name__)

ALL_TIME = ":all-time"
WINDOWS = {"600": 600, "10800": 10_800, "86400": 86_400}
NAMES = {"600": "10m 0s", "10800": "3h 0m 0s", "86400": "1d 0h 0m 0s", ALL_TIME: "All time"}
KEPT_ERRORS = 50
# A worker that is silent for so long has ended.
SILENCE_SECONDS = 10.0

Sums = Counter[tuple[str, ...]]
"""By name, and by stream or by input component and stream."""
TaskSums = dict[int, Sums]


class _Span(NamedTuple):
    """Buckets of one length; together they cover the window, to within one bucket."""

    seconds: int
    buckets: int


# The last bucket of a window is still filling, so one more is kept.
_SPANS = {"600": _Span(30, 21), "10800": _Span(540, 21), "86400": _Span(4320, 21)}


class TopologyFigures:
    """The figures of one topology."""

    def __init__(self) -> None:
        self.components: dict[int, str] = {}
        self.workers: dict[int, WorkerFigures] = {}
        self.errors: dict[str | None, deque[ErrorFigures]] = {}
        self._all_time: TaskSums = {}
        self._buckets: dict[str, dict[int, TaskSums]] = {window: {} for window in _SPANS}

    def add(self, record: WorkerFigures) -> None:
        self.workers[record.worker] = record
        for error in record.errors:
            self.errors.setdefault(error.component, deque(maxlen=KEPT_ERRORS)).append(error)
        for task in record.tasks:
            self.components[task.task] = task.component
            sums = _sums(task)
            self._all_time.setdefault(task.task, Counter()).update(sums)
            for window, span in _SPANS.items():
                number = record.time_ms // 1000 // span.seconds
                bucket = self._buckets[window].setdefault(number, {})
                bucket.setdefault(task.task, Counter()).update(sums)
        self._drop_old(record.time_ms / 1000)

    def _drop_old(self, now: float) -> None:
        for window, span in _SPANS.items():
            buckets = self._buckets[window]
            oldest = int(now) // span.seconds - span.buckets
            for number in [number for number in buckets if number <= oldest]:
                del buckets[number]

    def within(self, window: str, now: float) -> TaskSums:
        """The sums of each task within a window that ends now."""
        if window == ALL_TIME:
            return self._all_time
        span = _SPANS[window]
        newest = int(now) // span.seconds
        total: TaskSums = {}
        for number, bucket in self._buckets[window].items():
            if newest - span.buckets < number <= newest:
                for task, sums in bucket.items():
                    total.setdefault(task, Counter()).update(sums)
        return total

    def live_workers(self, now: float) -> list[WorkerFigures]:
        return [record for record in self.workers.values() if now - record.time_ms / 1000 < SILENCE_SECONDS]


class AllFigures:
    """The figures of all topologies, by their ids. One thread may use it."""

    def __init__(self) -> None:
        self._topologies: dict[str, TopologyFigures] = {}

    def add(self, content: bytes | None) -> None:
        """Take up a record of the metrics topic; one that is not readable is ignored."""
        try:
            record = decode_figures(content or b"")
        except msgspec.MsgspecError as error:
            logger.debug("ignored a record of figures: %s", error)
            return
        self._topologies.setdefault(record.topology, TopologyFigures()).add(record)

    def of(self, topology: str) -> TopologyFigures:
        """The figures of a topology; empty ones if it has not reported yet."""
        return self._topologies.get(topology) or TopologyFigures()

    def keep_only(self, topologies: Iterable[str]) -> None:
        """Forget the topologies that are gone."""
        kept = set(topologies)
        for gone in self._topologies.keys() - kept:
            del self._topologies[gone]


def _sums(task: TaskFigures) -> Sums:
    sums: Sums = Counter()
    for stream, count in task.emitted.items():
        sums["emitted", stream] += count
    for stream, count in task.transferred.items():
        sums["transferred", stream] += count
    for source in task.inputs:
        where = (source.component, source.stream)
        sums["executed", *where] += source.executed
        sums["acked", *where] += source.acked
        sums["failed", *where] += source.failed
        sums["execute_us", *where] += round(source.execute_ms * 1000)
        sums["process_us", *where] += round(source.process_ms * 1000)
    sums["tree_acked",] += task.acked
    sums["tree_failed",] += task.failed
    sums["complete_us",] += round(task.complete_ms * 1000)
    return sums


def total(sums: Sums, name: str, *where: str) -> int:
    """The sum of a figure over everything, or over one stream or one input."""
    return sum(count for key, count in sums.items() if key[0] == name and key[1 : 1 + len(where)] == where)


def merged(many: Iterable[Sums]) -> Sums:
    result: Sums = Counter()
    for sums in many:
        result.update(sums)
    return result
