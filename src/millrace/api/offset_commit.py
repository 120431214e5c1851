"""OffsetCommit v2-10. v6: leader epochs. v7: static members. v8: flexible. v10: topic ids."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit
from millrace.groups.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_FROM = 10
MAX_TIME_MS = 2**63 - 1


def handle(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    now_ms = ctx.clock.now_ms()
    expires_ms = NO_EXPIRY
    if request.retention_time_ms >= 0:
        expires_ms = min(now_ms + request.retention_time_ms, MAX_TIME_MS)
    accepted: list[tuple[TopicPartition, CommittedOffset]] = []
    topics = [_take(ctx, topic, now_ms, expires_ms, accepted) for topic in request.topics]
    by = Commit(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=ctx.api_version,
    )
    try:
        ctx.groups.commit(request.group_id, by, accepted)
    except KafkaError as error:
        for topic in topics:
            for partition in topic.partitions:
                partition.error_code = error.error
    return OffsetCommitResponse(topics=topics)


def _take(
    ctx: Context,
    topic: OffsetCommitRequestTopic,
    now_ms: int,
    expires_ms: int,
    accepted: list[tuple[TopicPartition, CommittedOffset]],
) -> OffsetCommitResponseTopic:
    response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
    if ctx.api_version >= TOPIC_IDS_FROM:
        known, unknown = ctx.cluster.by_id.get(topic.topic_id), Error.UNKNOWN_TOPIC_ID
    else:
        known, unknown = ctx.cluster.topics.get(topic.name), Error.UNKNOWN_TOPIC_OR_PARTITION
    for asked in topic.partitions:
        if known is None:
            error = unknown
        elif not 0 <= asked.partition_index < known.partitions:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif len((asked.committed_metadata or "").encode()) > ctx.config.offset_metadata_max_bytes:
            error = Error.OFFSET_METADATA_TOO_LARGE
        else:
            error = Error.NONE
            committed = _committed(asked, now_ms, expires_ms, known.topic_id)
            accepted.append(((known.name, asked.partition_index), committed))
        response.partitions.append(
            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
        )
    return response


def _committed(
    asked: OffsetCommitRequestPartition, now_ms: int, expires_ms: int, topic_id: bytes
) -> CommittedOffset:
    return CommittedOffset(
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expires_ms,
        topic_id=topic_id,
    )
