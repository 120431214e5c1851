"""Committed offsets of groups: fetches, commits and deletes them, and tells the lag."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from millrace.admin.offsets import end_offsets
from millrace.admin.partitions import by_topic
from millrace.client import Client, Connection, CoordinatorType, Outcomes, TopicPartition
from millrace.client.locations import PASSING
from millrace.errors import check
from millrace.wire.messages import offset_commit as commit_api
from millrace.wire.messages import offset_delete as delete_api
from millrace.wire.messages import offset_fetch as fetch_api

# The last versions that name topics; the next ones have ids, which a deleted topic no longer has.
_FETCH_BY_NAME = _COMMIT_BY_NAME = 9
# From this version on, one request is about several groups.
_SEVERAL_GROUPS_VERSION = 8
_NO_OFFSET = -1
_NO_EPOCH = -1


class CommittedOffset(NamedTuple):
    """The offset that a group continues from, and the leader epoch of the record before it, if known."""

    offset: int
    leader_epoch: int | None = None
    metadata: str | None = None


class PartitionLag(NamedTuple):
    """A group's progress in a partition; `end` is None if the partition has no leader or was deleted."""

    committed: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """The number of records that the group has not read yet."""
        return None if self.end is None else self.end - self.committed


Committed = dict[TopicPartition, CommittedOffset]


async def committed_offsets(client: Client, group_ids: Iterable[str]) -> Outcomes[str, Committed]:
    """Every committed offset of these groups; a group that does not exist has none."""

    async def call(connection: Connection, group_ids: list[str]) -> Outcomes[str, Committed]:
        version = connection.version_of(fetch_api.OffsetFetchRequest, _FETCH_BY_NAME) or 0
        if version >= _SEVERAL_GROUPS_VERSION:
            return await _fetch_together(connection, group_ids)
        outcomes: Outcomes[str, Committed] = Outcomes()
        for group_id in group_ids:
            request = fetch_api.OffsetFetchRequest(group_id=group_id, topics=None)
            response = await connection.send(request, fetch_api.OffsetFetchResponse, highest=_FETCH_BY_NAME)
            _add(outcomes, group_id, response.error_code, response.topics)
        return outcomes

    return await client.call_coordinators(CoordinatorType.GROUP, group_ids, call)


async def _fetch_together(connection: Connection, group_ids: list[str]) -> Outcomes[str, Committed]:
    request = fetch_api.OffsetFetchRequest(
        groups=[fetch_api.OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    )
    outcomes: Outcomes[str, Committed] = Outcomes()
    response = await connection.send(request, fetch_api.OffsetFetchResponse, highest=_FETCH_BY_NAME)
    for group in response.groups:
        _add(outcomes, group.group_id, group.error_code, group.topics)
    return outcomes


def _add(
    outcomes: Outcomes[str, Committed],
    group_id: str,
    error_code: int,
    topics: Iterable[fetch_api.OffsetFetchResponseTopic | fetch_api.OffsetFetchResponseTopics],
) -> None:
    offsets = {}
    for topic in topics:
        for partition in topic.partitions:
            error_code = error_code or partition.error_code
            if partition.committed_offset != _NO_OFFSET:
                epoch = partition.committed_leader_epoch
                offsets[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                    partition.committed_offset, None if epoch == _NO_EPOCH else epoch, partition.metadata
                )
    outcomes.add(group_id, offsets, error_code)


async def group_lags(
    client: Client, group_ids: Iterable[str]
) -> Outcomes[str, dict[TopicPartition, PartitionLag]]:
    """The lag of these groups in every partition that they have committed an offset of."""
    committed = await committed_offsets(client, group_ids)
    partitions = {partition for offsets in committed.succeeded.values() for partition in offsets}
    ends = await end_offsets(client, partitions)
    lags = {
        group_id: {
            partition: PartitionLag(found.offset, ends.get(partition)) for partition, found in offsets.items()
        }
        for group_id, offsets in committed.succeeded.items()
    }
    return Outcomes(lags, committed.failed)


async def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition, None]:
    """Set the offsets of a group without members; creates the group if it does not exist."""

    async def call(connection: Connection, _: list[str]) -> Outcomes[str, Outcomes[TopicPartition, None]]:
        request = commit_api.OffsetCommitRequest(
            group_id=group_id,
            topics=[
                commit_api.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        commit_api.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)],
                            committed_metadata="",
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        response = await connection.send(request, commit_api.OffsetCommitResponse, highest=_COMMIT_BY_NAME)
        return Outcomes({group_id: _by_partition(response.topics)})

    return (await client.call_coordinators(CoordinatorType.GROUP, [group_id], call))[group_id]


async def delete_offsets(
    client: Client, group_id: str, partitions: Collection[TopicPartition]
) -> Outcomes[TopicPartition, None]:
    """Delete committed offsets. Raises KafkaError if the group as a whole rejects that."""

    async def call(connection: Connection, _: list[str]) -> Outcomes[str, Outcomes[TopicPartition, None]]:
        request = delete_api.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                delete_api.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[delete_api.OffsetDeleteRequestPartition(index) for index in indexes],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        response = await connection.send(request, delete_api.OffsetDeleteResponse)
        check(response.error_code)
        return Outcomes({group_id: _by_partition(response.topics)})

    return (await client.call_coordinators(CoordinatorType.GROUP, [group_id], call))[group_id]


def _by_partition(
    topics: Iterable[commit_api.OffsetCommitResponseTopic | delete_api.OffsetDeleteResponseTopic],
) -> Outcomes[TopicPartition, None]:
    """The outcome of each partition; raises if the broker says that it is not the coordinator."""
    outcomes: Outcomes[TopicPartition, None] = Outcomes()
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code in PASSING:
                check(partition.error_code)
            outcomes.add(TopicPartition(topic.name, partition.partition_index), None, partition.error_code)
    return outcomes
