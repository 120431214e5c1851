"""The local stores of a worker's state: in memory, or files that the next worker on this machine finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime.frames import Values
from millrace.topologies.runtime.inputs import Place
from millrace.topologies.runtime.store import DiskStore, MemoryStore, Store, state_directory

KINDS = ("memory", "disk")
TIMEOUT_SECONDS = 30.0


class LocalStores:
    """Opens the stores that `topology.state.store` asks for."""

    def __init__(self, plan: Plan, client: Mapping[str, Any], values: Values) -> None:
        self._kind = value_of("topology.state.store", plan.config)
        if self._kind not in KINDS:
            raise TopologyError(f"topology.state.store is {self._kind!r}; it may be {' or '.join(KINDS)}")
        self._plan = plan
        self._client = client
        self._values = values

    def open(self, place: Place) -> Store:
        """The store of a changelog partition."""
        if self._kind == "memory":
            return MemoryStore()
        directory = state_directory(value_of("topology.state.dir", self._plan.config))
        # The id is that of one topic of one cluster: state of another topic of the same name is not found.
        topic, partition = place
        path = directory / f"{topic}-{partition}-{self._topic_id(topic)}.sqlite"
        return DiskStore(path, self._values)

    def _topic_id(self, topic: str) -> str:
        admin = AdminClient(dict(self._client))
        (described,) = admin.describe_topics(TopicCollection([topic])).values()
        topic_id = described.result(TIMEOUT_SECONDS).topic_id
        return f"{topic_id.get_most_significant_bits():x}-{topic_id.get_least_significant_bits():x}"
