"""Progress of a topology: the offsets of its group beside the ends of the partitions that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.history import History
from millrace.topologies.runtime.inputs import Place

TIMEOUT_SECONDS = 30.0


class Progress:
    """Asks the log how far a topology has come. One thread may use it."""

    def __init__(
        self, plan: Plan, bootstrap: str, client: Mapping[str, str], history: History | None = None
    ) -> None:
        self._plan = plan
        self._consumer = Consumer(
            {
                **client,
                "bootstrap.servers": bootstrap,
                "group.id": topics.group_of(plan.name),
                "enable.auto.commit": False,
            }
        )
        self._sources = [place for component in plan.spouts for place in self._source_places(component)]
        self._ends = self._ends_of(history)

    def is_done(self) -> bool:
        """Whether everything that was in the sources at the beginning has left the topology.

        The order matters. Once the sources are done, all that follows from them is in the edges of the first
        bolts; once these are done, in those of the next. So one look in the order of the graph is enough.
        """
        committed = self._committed(self._sources)
        if any(committed[place] < end for place, end in self._ends.items()):
            return False
        for component in self._plan.components:
            if component in self._plan.bolts:
                topic = topics.edge_topic(self._plan.name, component)
                edges = [(topic, index) for index in range(self._plan.components[component].tasks)]
                done = self._committed(edges)
                if any(done[place] < self._end(place) for place in edges):
                    return False
        return True

    def _ends_of(self, history: History | None) -> dict[Place, int]:
        """The offsets that the sources must come to."""
        if history is None:
            return {place: self._end(place) for place in self._sources}
        return {
            (topic, index): end
            for topic, ranges in history.ranges.items()
            for index, (start, end) in enumerate(ranges)
            if end > start
        }

    def close(self) -> None:
        self._consumer.close()

    def _source_places(self, component: str) -> list[Place]:
        spec = self._plan.components[component]
        if not issubclass(spec.component, LogSpout):
            return []
        spout = spec.component(*spec.arguments, **spec.keywords)
        listed = self._consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        return [(name, index) for name in spout.topics_among(listed) for index in listed[name].partitions]

    def _committed(self, places: list[Place]) -> dict[Place, int]:
        if not places:
            return {}
        wanted = [TopicPartition(*place) for place in places]
        found = self._consumer.committed(wanted, TIMEOUT_SECONDS)
        return {(known.topic, known.partition): max(known.offset, 0) for known in found}

    def _end(self, place: Place) -> int:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_SECONDS)
        # Nothing is left to read of a partition whose records are all deleted.
        return int(high) if high > low else 0
