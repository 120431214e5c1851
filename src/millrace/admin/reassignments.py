"""Replicas of partitions: elects their leaders, and moves them to other brokers."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from millrace.admin.partitions import by_topic
from millrace.client import Client, Connection, Outcomes, TopicPartition
from millrace.errors import check
from millrace.wire.messages import alter_partition_reassignments as alter_api
from millrace.wire.messages import elect_leaders as elect_api
from millrace.wire.messages import list_partition_reassignments as list_api

_UNCLEAN_VERSION = 1


class ElectionType(IntEnum):
    """PREFERRED elects the first replica; UNCLEAN accepts one that is out of sync, which loses records."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A move that is under way: all replicas of the partition, those to come and those to go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def elect_leaders(
    client: Client,
    partitions: Iterable[TopicPartition],
    election_type: ElectionType = ElectionType.PREFERRED,
) -> Outcomes[TopicPartition, None]:
    """Elect leaders; ELECTION_NOT_NEEDED is the error of a partition that already has the wanted one."""

    async def call(
        connection: Connection, partitions: list[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        request = elect_api.ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=[
                elect_api.TopicPartitions(topic, indexes) for topic, indexes in by_topic(partitions).items()
            ],
            timeout_ms=client.timeout_ms,
        )
        lowest = _UNCLEAN_VERSION if election_type is ElectionType.UNCLEAN else 0
        response = await connection.send(request, elect_api.ElectLeadersResponse, lowest=lowest)
        check(response.error_code)
        outcomes: Outcomes[TopicPartition, None] = Outcomes()
        for topic in response.replica_election_results:
            for partition in topic.partition_result:
                key = TopicPartition(topic.topic, partition.partition_id)
                outcomes.add(key, None, partition.error_code, partition.error_message)
        return outcomes

    return await client.call_controller(partitions, call)


async def alter_reassignments(
    client: Client, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> Outcomes[TopicPartition, None]:
    """Begin to move partitions to these replicas; None cancels a move that is under way."""

    def reassigned(topic: str, index: int) -> alter_api.ReassignablePartition:
        wanted = replicas[TopicPartition(topic, index)]
        return alter_api.ReassignablePartition(index, None if wanted is None else list(wanted))

    async def call(
        connection: Connection, partitions: list[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        request = alter_api.AlterPartitionReassignmentsRequest(
            timeout_ms=client.timeout_ms,
            topics=[
                alter_api.ReassignableTopic(topic, [reassigned(topic, index) for index in indexes])
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        response = await connection.send(request, alter_api.AlterPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        outcomes: Outcomes[TopicPartition, None] = Outcomes()
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                outcomes.add(key, None, partition.error_code, partition.error_message)
        return outcomes

    return await client.call_controller(replicas, call)


async def list_reassignments(
    client: Client, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The moves that are under way, of these partitions or of all."""
    wanted = None if partitions is None else by_topic(partitions)
    request = list_api.ListPartitionReassignmentsRequest(
        timeout_ms=client.timeout_ms,
        topics=None
        if wanted is None
        else [list_api.ListPartitionReassignmentsTopics(topic, indexes) for topic, indexes in wanted.items()],
    )

    async def call(
        connection: Connection, keys: list[None]
    ) -> Outcomes[None, list_api.ListPartitionReassignmentsResponse]:
        response = await connection.send(request, list_api.ListPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        return Outcomes(dict.fromkeys(keys, response))

    response = (await client.call_controller([None], call))[None]
    return {
        TopicPartition(topic.name, partition.partition_index): Reassignment(
            tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in response.topics
        for partition in topic.partitions
    }
