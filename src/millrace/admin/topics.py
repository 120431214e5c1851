"""Topics: describes, creates, extends and deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.admin.offsets import LATEST, list_offsets
from millrace.client import NO_NODE, Client, Connection, Outcomes, TopicPartition
from millrace.errors import Error, KafkaError
from millrace.wire.messages import create_partitions as partitions_api
from millrace.wire.messages import create_topics as create_api
from millrace.wire.messages import delete_topics as delete_api
from millrace.wire.messages import describe_topic_partitions as describe_api
from millrace.wire.messages import metadata as metadata_api

BROKER_DEFAULT = -1
# From this version on, brokers have defaults for partitions and replicas.
DEFAULTS_VERSION = 4
PARTITIONS_PER_RESPONSE = 2000


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition; `leader` is None if it has none. Old brokers do not tell the eligible leaders."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions, in the order of their indexes."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition.index) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. The broker chooses what is left out.

    `assignments` names the replicas of each partition, instead of `partitions` and `replication_factor`.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The number of partitions that a topic shall have, and optionally the replicas of the new ones."""

    total: int
    assignments: Sequence[Sequence[int]] = ()


async def list_topics(client: Client) -> dict[str, TopicDescription]:
    """Every topic, in the order of the names."""
    response = await client.metadata()
    found = {topic.name: _from_metadata(topic) for topic in response.topics if topic.name is not None}
    return {name: found[name] for name in sorted(found)}


async def describe_topics(
    client: Client, names: Iterable[str], *, partitions_per_response: int = PARTITIONS_PER_RESPONSE
) -> Outcomes[str, TopicDescription]:
    """These topics, with eligible leaders if the broker knows them."""

    async def call(connection: Connection, names: list[str]) -> Outcomes[str, TopicDescription]:
        if connection.offers(describe_api.DescribeTopicPartitionsRequest):
            return await _describe(connection, names, partitions_per_response)
        return _outcomes_of(await client.metadata(names))

    return await client.call_any(names, call)


async def _describe(
    connection: Connection, names: list[str], partitions_per_response: int
) -> Outcomes[str, TopicDescription]:
    outcomes: Outcomes[str, TopicDescription] = Outcomes()
    request = describe_api.DescribeTopicPartitionsRequest(
        topics=[describe_api.TopicRequest(name=name) for name in names],
        response_partition_limit=partitions_per_response,
    )
    partitions: dict[str, list[PartitionDescription]] = {name: [] for name in names}
    while True:
        response = await connection.send(request, describe_api.DescribeTopicPartitionsResponse)
        for topic in response.topics:
            name = topic.name or ""
            partitions[name] += map(_partition, topic.partitions)
            ordered = tuple(sorted(partitions[name], key=lambda partition: partition.index))
            described = TopicDescription(name, topic.topic_id, topic.is_internal, ordered)
            outcomes.add(name, described, topic.error_code)
        if response.next_cursor is None:
            return outcomes
        request.cursor = response.next_cursor


def _partition(partition: describe_api.DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    return PartitionDescription(
        partition.partition_index,
        None if partition.leader_id == NO_NODE else partition.leader_id,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        None if eligible is None else tuple(eligible),
        None if last_known is None else tuple(last_known),
    )


def _outcomes_of(response: metadata_api.MetadataResponse) -> Outcomes[str, TopicDescription]:
    outcomes: Outcomes[str, TopicDescription] = Outcomes()
    for topic in response.topics:
        outcomes.add(topic.name or "", _from_metadata(topic), topic.error_code)
    return outcomes


def _from_metadata(topic: metadata_api.MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition.partition_index,
            None if partition.leader_id == NO_NODE else partition.leader_id,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in topic.partitions
    ]
    ordered = tuple(sorted(partitions, key=lambda partition: partition.index))
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, ordered)


async def existing_topics(client: Client, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Those of these topics that exist, in the order of the names."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = _outcomes_of(await client.metadata(wanted))
    for error in found.failed.values():
        if error.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return found.in_order_of(wanted).succeeded


async def create_topics(
    client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Outcomes[str, bytes]:
    """Create topics; the value is the topic's id. `wait_for_topics` waits until they can be used."""
    by_name = {topic.name: topic for topic in topics}

    async def call(connection: Connection, names: list[str]) -> Outcomes[str, bytes]:
        wanted = [by_name[name] for name in names]
        request = create_api.CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        needs_defaults = any(_needs_defaults(topic) for topic in wanted)
        response = await connection.send(
            request, create_api.CreateTopicsResponse, lowest=DEFAULTS_VERSION if needs_defaults else 0
        )
        outcomes: Outcomes[str, bytes] = Outcomes()
        for result in response.topics:
            outcomes.add(result.name, result.topic_id, result.error_code, result.error_message)
        return outcomes

    return await client.call_controller(by_name, call)


def _needs_defaults(topic: NewTopic) -> bool:
    return not topic.assignments and (topic.partitions is None or topic.replication_factor is None)


def _creatable(topic: NewTopic) -> create_api.CreatableTopic:
    return create_api.CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if topic.partitions is None else topic.partitions,
        replication_factor=BROKER_DEFAULT if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            create_api.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(topic.assignments)
        ],
        configs=[
            create_api.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


async def wait_for_topics(client: Client, names: Iterable[str]) -> None:
    """Wait until every broker knows these topics, and the leaders serve every partition.

    A controller reports a topic as created before all brokers know it. Raises KafkaError when the client's
    timeout has passed.
    """
    request = metadata_api.MetadataRequest(
        topics=[metadata_api.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    partitions: set[TopicPartition] = set()

    async def call(connection: Connection, node_ids: list[int]) -> Outcomes[int, None]:
        response = await connection.send(request, metadata_api.MetadataResponse)
        for topic in map(_from_metadata, response.topics):
            if not topic.partitions or any(partition.leader is None for partition in topic.partitions):
                raise KafkaError(Error.LEADER_NOT_AVAILABLE, f"topic {topic.name} has no leaders yet")
            partitions.update(topic.topic_partitions)
        return Outcomes(dict.fromkeys(node_ids))

    await client.metadata([])
    (await client.call_brokers(client.cluster.nodes, call)).all()
    (await list_offsets(client, dict.fromkeys(partitions, LATEST))).all()


async def create_partitions(
    client: Client, topics: Mapping[str, NewPartitions], *, validate_only: bool = False
) -> Outcomes[str, None]:
    """Add partitions to topics."""

    async def call(connection: Connection, names: list[str]) -> Outcomes[str, None]:
        request = partitions_api.CreatePartitionsRequest(
            topics=[_extended(name, topics[name]) for name in names],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        outcomes: Outcomes[str, None] = Outcomes()
        for result in (await connection.send(request, partitions_api.CreatePartitionsResponse)).results:
            outcomes.add(result.name, None, result.error_code, result.error_message)
        return outcomes

    return await client.call_controller(topics, call)


def _extended(name: str, new: NewPartitions) -> partitions_api.CreatePartitionsTopic:
    assignments = [partitions_api.CreatePartitionsAssignment(list(replicas)) for replicas in new.assignments]
    return partitions_api.CreatePartitionsTopic(name=name, count=new.total, assignments=assignments or None)


async def delete_topics(client: Client, names: Iterable[str]) -> Outcomes[str, None]:
    """Delete topics with all their records."""

    async def call(connection: Connection, names: list[str]) -> Outcomes[str, None]:
        request = delete_api.DeleteTopicsRequest(
            topics=[delete_api.DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=client.timeout_ms,
        )
        outcomes: Outcomes[str, None] = Outcomes()
        for result in (await connection.send(request, delete_api.DeleteTopicsResponse)).responses:
            outcomes.add(result.name or "", None, result.error_code, result.error_message)
        return outcomes

    return await client.call_controller(names, call)
