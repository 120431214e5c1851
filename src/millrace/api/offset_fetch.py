"""OffsetFetch v1-10. v2: null for all. v6: flexible. v7: stable offsets. v8: several groups. v10: ids."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.groups.offsets import TopicPartition, topics_of
from millrace.groups.shard import GroupShard
from millrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERRORS_FROM = 2
SEVERAL_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
NO_OFFSET = -1


def handle(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if ctx.api_version >= SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[_fetch_group(ctx, group, request.require_stable) for group in request.groups]
        )
    return _as_single_group(ctx, _fetch_group(ctx, _only_group(request), request.require_stable))


def _fetch_group(
    ctx: Context, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    try:
        shard = ctx.groups.runtime.shard_of(asked.group_id)
        group = shard.find(asked.group_id)
        if group is not None:
            group.validate_fetch(asked.member_id, asked.member_epoch)
    except KafkaError as error:
        response.error_code = error.error
        if ctx.api_version < GROUP_ERRORS_FROM:
            response.topics = [_failed(topic, error.error) for topic in asked.topics or ()]
        return response
    reading = _Reading(ctx, shard, asked.group_id, require_stable)
    response.topics = list(reading.all() if asked.topics is None else map(reading.topic, asked.topics))
    return response


class _Reading:
    """Reads one group's offsets."""

    def __init__(self, ctx: Context, shard: GroupShard, group_id: str, require_stable: bool) -> None:
        self._ctx = ctx
        self._offsets = shard.offsets
        self._group_id = group_id
        self._require_stable = require_stable

    def all(self) -> Iterator[OffsetFetchResponseTopics]:
        for name, indexes in topics_of(self._offsets.of_group(self._group_id)).items():
            known = self._ctx.image.topics.get(name)
            if known is None and self._ctx.api_version >= TOPIC_IDS_FROM:
                continue
            yield OffsetFetchResponseTopics(
                name=name,
                topic_id=known.topic_id if known is not None else bytes(16),
                partitions=[self._partition((name, index)) for index in indexes],
            )

    def topic(self, asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        name = asked.name
        if self._ctx.api_version >= TOPIC_IDS_FROM:
            known = self._ctx.image.by_id.get(asked.topic_id)
            if known is None:
                return _failed(asked, Error.UNKNOWN_TOPIC_ID)
            name = known.name
        return OffsetFetchResponseTopics(
            name=name,
            topic_id=asked.topic_id,
            partitions=[self._partition((name, index)) for index in asked.partition_indexes],
        )

    def _partition(self, partition: TopicPartition) -> OffsetFetchResponsePartitions:
        response = OffsetFetchResponsePartitions(
            partition_index=partition[1], committed_offset=NO_OFFSET, metadata=""
        )
        if self._require_stable and self._offsets.is_pending(self._group_id, *partition):
            response.error_code = Error.UNSTABLE_OFFSET_COMMIT
            return response
        committed = self._offsets.get(self._group_id, *partition)
        if committed is not None:
            response.committed_offset = committed.offset
            response.committed_leader_epoch = committed.leader_epoch
            response.metadata = committed.metadata
        return response


def _failed(asked: OffsetFetchRequestTopics, error: Error) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
            )
            for index in asked.partition_indexes
        ],
    )


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group of the older versions, in the newer form."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_single_group(ctx: Context, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
