"""The cluster as its brokers have last described it: addresses, the controller, partition leaders."""

from collections.abc import Iterable
from typing import NamedTuple

from millrace.client.address import Address
from millrace.errors import Error, KafkaError, error_of
from millrace.wire.messages.metadata import MetadataResponse

NO_NODE = -1


class Node(NamedTuple):
    """A broker: its id, the address it gives to clients, and its rack if it has one."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Topic(NamedTuple):
    """Why a topic is not available, or the leaders of its partitions; NO_NODE where there is none."""

    error: Error
    leaders: dict[int, int]


class Metadata:
    """A cache of what the brokers say. Leaders stay in it until a request proves them wrong."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.controller_id = NO_NODE
        self._topics: dict[str, _Topic] = {}

    def update(self, response: MetadataResponse) -> None:
        """Take over a response, which is about all topics or only about some."""
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.controller_id = response.controller_id
        for topic in response.topics:
            leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
            self._topics[topic.name or ""] = _Topic(error_of(topic.error_code), leaders)

    def topics_to_look_up(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The topics of those partitions whose leader is not known."""
        return sorted({partition.topic for partition in partitions if not self._is_known(partition)})

    def _is_known(self, partition: TopicPartition) -> bool:
        topic = self._topics.get(partition.topic)
        return topic is not None and topic.leaders.get(partition.partition, NO_NODE) != NO_NODE

    def leader(self, partition: TopicPartition) -> int:
        """The leader of a partition whose topic was looked up. Raises KafkaError if there is none."""
        topic = self._topics[partition.topic]
        if topic.error is not Error.NONE and topic.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(topic.error)
        if partition.partition not in topic.leaders:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        leader = topic.leaders[partition.partition]
        if leader == NO_NODE:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")
        return leader

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Look these partitions up again before the next use."""
        for partition in partitions:
            self._topics.pop(partition.topic, None)
