"""An immutable picture of the cluster: brokers, controller, topics, partition leaders, dynamic configs.

A `MetadataStore` publishes a new image for every change. Readers take the current image once per request and
never see half of a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from millrace.errors import Error, KafkaError
from millrace.security.acls import Acl

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NO_LEADER = -1
NO_CONTROLLER = -1
NO_EPOCH = -1
ALL_BROKERS = ""
"""The name under which configs of all brokers are kept."""

K = TypeVar("K")
V = TypeVar("V")


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


class Endpoint(NamedTuple):
    """An address that clients connect to."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker and the endpoint that it advertises on each of its listeners."""

    broker_id: int
    endpoints: Mapping[str, Endpoint] = field(default_factory=_nothing)
    rack: str | None = None
    epoch: int = NO_EPOCH
    """Tells the lives of a broker apart: each registration has a larger one."""
    is_stopping: bool = False
    """Whether it is about to stop: it gives up its leaders, and joins no ISR."""


class PartitionState(NamedTuple):
    """The replicas of a partition and the one that leads it."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas on a live broker that cannot open their log."""
    partition_epoch: int = 0
    """Rises with every change of the state."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment removes once the others are in sync."""
    eligible: tuple[int, ...] = ()
    """Replicas out of sync that lack no committed record (KIP-966): none was committed since they left."""
    leader_broker_epoch: int = NO_EPOCH
    """The life of the leading broker that was elected: after a restart it has to be elected again."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: the state of each partition, and the configs set on the topic."""

    name: str
    topic_id: bytes
    states: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=_nothing)

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.states)

    @property
    def replication_factor(self) -> int:
        return len(self.states[0].replicas) if self.states else 0

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def with_states(self, states: Mapping[int, PartitionState]) -> TopicImage:
        """The topic with the states of some of its partitions replaced."""
        return replace(
            self, states=tuple(states.get(index, state) for index, state in enumerate(self.states))
        )


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster at one moment. Immutable; every change makes a new image."""

    cluster_id: str = ""
    controller: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=_nothing)
    topics: Mapping[str, TopicImage] = field(default_factory=_nothing)
    by_id: Mapping[bytes, TopicImage] = field(default_factory=_nothing, repr=False)
    """The same topics by their ids."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """Dynamic configs by broker, and under ALL_BROKERS the cluster-wide ones."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """The configs of groups that have some of their own."""
    entity_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing, repr=False)
    """Credentials and quotas of users, clients and addresses; see security/entities.py for the names."""
    acls: frozenset[Acl] = frozenset()
    deleting: Mapping[bytes, str] = field(default_factory=_nothing)
    """Ids and names of deleted topics whose files may still exist."""
    version: int = 0
    """Rises whenever a topic is created, deleted or grows."""

    # Reading

    def topic(self, name: str) -> TopicImage:
        try:
            return self.topics[name]
        except KeyError:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION) from None

    def topic_by_id(self, topic_id: bytes) -> TopicImage:
        try:
            return self.by_id[topic_id]
        except KeyError:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID) from None

    def partition_count(self, name: str) -> int | None:
        """The number of partitions of a topic, None if there is no such topic."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.states)

    def partition(self, name: str, index: int) -> PartitionState | None:
        """The state of a partition, None if there is no such partition."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.states):
            return None
        return topic.states[index]

    def offline_replicas(self, state: PartitionState) -> list[int]:
        """The replicas of a partition whose broker is gone or cannot open their log."""
        brokers, offline = self.brokers, state.offline
        return [replica for replica in state.replicas if replica not in brokers or replica in offline]

    def endpoint(self, broker_id: int, listener: str) -> Endpoint:
        """The address of a broker on a listener."""
        broker = self.brokers.get(broker_id)
        if broker is None or listener not in broker.endpoints:
            raise KafkaError(
                Error.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not available on listener {listener}."
            )
        return broker.endpoints[listener]

    def brokers_on(self, listener: str) -> Iterator[tuple[BrokerImage, Endpoint]]:
        """The brokers that have a listener, with their addresses on it."""
        for broker in self.brokers.values():
            if listener in broker.endpoints:
                yield broker, broker.endpoints[listener]

    # Changing

    def with_broker(self, broker: BrokerImage) -> ClusterImage:
        return replace(self, brokers=_with(self.brokers, broker.broker_id, broker))

    def with_brokers(self, brokers: Iterable[BrokerImage]) -> ClusterImage:
        """The image with exactly these brokers."""
        return replace(self, brokers=MappingProxyType({broker.broker_id: broker for broker in brokers}))

    def with_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        """The image with topics added or replaced."""
        by_name, by_id, version = dict(self.topics), dict(self.by_id), self.version
        for topic in topics:
            known = by_name.get(topic.name)
            if known is None or known.partitions != topic.partitions:
                version = self.version + 1
            by_name[topic.name] = by_id[topic.topic_id] = topic
        return replace(self, topics=MappingProxyType(by_name), by_id=MappingProxyType(by_id), version=version)

    def without_topic(self, topic: TopicImage) -> ClusterImage:
        """The image without a topic, whose files may still exist."""
        return replace(
            self,
            topics=_without(self.topics, topic.name),
            by_id=_without(self.by_id, topic.topic_id),
            deleting=_with(self.deleting, topic.topic_id, topic.name),
            version=self.version + 1,
        )

    def with_partition_states(self, states: Mapping[str, Mapping[int, PartitionState]]) -> ClusterImage:
        """The image with the states of some partitions replaced, by topic and index."""
        return self.with_topics(self.topics[name].with_states(changed) for name, changed in states.items())

    def after_deletion(self, topic_id: bytes) -> ClusterImage:
        """The image once the files of a deleted topic are gone."""
        return replace(self, deleting=_without(self.deleting, topic_id))

    def with_broker_configs(self, broker: str, configs: Mapping[str, str]) -> ClusterImage:
        return replace(self, broker_configs=_with(self.broker_configs, broker, configs))

    def with_group_configs(self, group: str, configs: Mapping[str, str]) -> ClusterImage:
        return self.with_configs_of_groups({group: configs})

    def with_configs_of_groups(self, changes: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """The image with the configs of some groups replaced."""
        configs = {**self.group_configs, **changes}
        return replace(
            self,
            group_configs=MappingProxyType({group: known for group, known in configs.items() if known}),
        )

    def with_acls(self, acls: frozenset[Acl]) -> ClusterImage:
        return replace(self, acls=acls)

    def with_entity_configs(self, entity: str, configs: Mapping[str, str]) -> ClusterImage:
        if not configs:
            return replace(self, entity_configs=_without(self.entity_configs, entity))
        return replace(self, entity_configs=_with(self.entity_configs, entity, configs))


def _with(mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return MappingProxyType({**mapping, key: value})


def _without(mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    return MappingProxyType({known: value for known, value in mapping.items() if known != key})
