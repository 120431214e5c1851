"""Runs over history: exact ranges of the topics, settled before anything is read, and the records' clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime.inputs import Place

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class History:
    """The records that a run reads: by topic, the first offset of each partition and its end."""

    ranges: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None

    def range_of(self, place: Place) -> tuple[int, int]:
        start, end = self.ranges[place[0]][place[1]]
        return start, end


def settle(
    plan: Plan, bootstrap: str, client: Mapping[str, str], from_ms: int | None, to_ms: int | None
) -> History:
    """The range between two moments of every topic that the topology reads."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise TopologyError("the range ends before it begins: --from must be earlier than --to")
    consumer = Consumer({**client, "bootstrap.servers": bootstrap, "group.id": f"topology-{plan.name}"})
    try:
        listed = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        ranges = {
            topic: [
                [_offset(consumer, topic, index, from_ms, 0), _offset(consumer, topic, index, to_ms, 1)]
                for index in sorted(listed[topic].partitions)
            ]
            for topic in _topics(plan, listed)
        }
    finally:
        consumer.close()
    return History(ranges, from_ms, to_ms)


def _topics(plan: Plan, known: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for component in plan.spouts:
        spec = plan.components[component]
        if not issubclass(spec.component, LogSpout):
            raise TopologyError(f"{component} is a spout of your own: only topics have a history to run over")
        found |= dict.fromkeys(spec.component(*spec.arguments, **spec.keywords).topics_among(known))
    return list(found)


def _offset(consumer: Consumer, topic: str, index: int, moment_ms: int | None, watermark: int) -> int:
    """The first offset at a moment; the partition's first offset or its end if there is no moment."""
    bounds = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=TIMEOUT_SECONDS)
    if moment_ms is None:
        return int(bounds[watermark])
    (found,) = consumer.offsets_for_times([TopicPartition(topic, index, moment_ms)], TIMEOUT_SECONDS)
    return int(found.offset if found.offset >= 0 else bounds[1])


class RecordClock:
    """The time of the records: that of the partition that is furthest behind, so no tick comes too early.

    A worker without sources follows the newest frame that it received. Owned by the worker's loop.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._seconds = (history.from_ms or 0) / 1000
        self._behind: dict[Place, int] = {}
        self._newest_ms = history.from_ms or 0
        self._has_sources = False

    def now(self) -> float:
        return self._seconds

    def set(self, seconds: float) -> None:
        self._seconds = max(self._seconds, seconds)

    @property
    def began(self) -> bool:
        """Whether the time is known."""
        return self._seconds > 0

    def add_source(self, place: Place) -> None:
        self._has_sources = True
        self._behind[place] = self._newest_ms

    def note(self, place: Place, timestamp_ms: int) -> None:
        """A record has come."""
        self._newest_ms = max(self._newest_ms, timestamp_ms)
        if place in self._behind:
            self._behind[place] = max(self._behind[place], timestamp_ms)

    def finish(self, place: Place) -> None:
        """A partition has been read to the end of its range."""
        self._behind.pop(place, None)

    @property
    def target(self) -> float:
        """The time that the records have come to."""
        if not self._has_sources:
            return self._newest_ms / 1000
        if self._behind:
            return min(self._behind.values()) / 1000
        return max(self._history.to_ms or 0, self._newest_ms) / 1000
