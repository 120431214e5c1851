"""Counts and distributions of a broker, handed out when something asks for them.

The parts of a broker count in plain integers of their own, which costs next to nothing, and describe them as
families when a snapshot is taken. What does cost something, such as measuring the time of each request, is
done only while snapshots are taken from time to time: see `Metrics.is_watched`.

Names are those of Apache Kafka's metrics, where it has one. A renderer turns them into its own form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from millrace.steps import Steps
from millrace.timers import Timers

# Scrapers come every few seconds or minutes; without one for this long, measuring ends.
WATCHED_MS = 10 * 60 * 1000


class Kind(Enum):
    """The way a value changes."""

    COUNTER = "counter"
    """Only rises, from 0 at the start of the broker."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricName(NamedTuple):
    """The name of a metric in Kafka's manner; `str` gives the name of its MBean."""

    domain: str
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.domain}:type={self.type},name={self.name}"


class Distribution(NamedTuple):
    """Observed values by size."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; a value that equals a bound is below it."""
    counts: tuple[int, ...]
    """The values up to each bound and past the one before it; the last count is of those past all bounds."""
    total: float
    """The sum of all values."""

    @property
    def observations(self) -> int:
        """The number of values."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One value of a metric, of the thing that its labels name."""

    labels: Mapping[str, str]
    value: float | Distribution


class Family(NamedTuple):
    """All samples of one metric."""

    name: MetricName
    kind: Kind
    samples: list[Sample]


# From a tenth of a millisecond to half a minute.
MILLISECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)


class Histogram:
    """Counts values by size. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...] = MILLISECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def distribution(self) -> Distribution:
        return Distribution(self._bounds, tuple(self._counts), self._total)


Collect: TypeAlias = "Callable[[], Steps[list[Family]]]"
"""Describes the counts of a part of the broker; in steps, because there may be thousands of topics."""


class Metrics:
    """Takes snapshots of all parts of a broker. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_collectors", "_timers", "is_watched")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._collectors: list[Collect] = []
        self.is_watched = False
        """Whether snapshots are taken from time to time, so that measuring is worth its cost."""

    def add(self, collect: Collect) -> None:
        """Have a part of the broker take part in every snapshot."""
        self._collectors.append(collect)

    def snapshot(self) -> Steps[list[Family]]:
        """Everything counted so far, as values that other threads and processes may keep."""
        self.is_watched = True
        self._timers.schedule((self, "watched"), WATCHED_MS, self._unwatch)
        families: list[Family] = []
        for collect in self._collectors:
            families += yield from collect()
        return families

    def _unwatch(self) -> None:
        self.is_watched = False


def family(name: MetricName, kind: Kind, values: Iterable[tuple[Mapping[str, str], float]]) -> Family:
    """A family of numbers with labels."""
    return Family(name, kind, [Sample(labels, value) for labels, value in values])


def single(name: MetricName, kind: Kind, value: float | Distribution) -> Family:
    """A family of one value without labels."""
    return Family(name, kind, [Sample({}, value)])
