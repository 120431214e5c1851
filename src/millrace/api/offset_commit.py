"""OffsetCommit v2-10. v6: leader epochs. v7: static members. v8: flexible. v10: topic ids."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit
from millrace.groups.offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from millrace.steps import Steps, slices
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCHS_FROM = 9
TOPIC_IDS_FROM = 10
MAX_TIME_MS = 2**63 - 1


def handle(ctx: Context, request: OffsetCommitRequest) -> Steps[Eventual[OffsetCommitResponse]]:
    now_ms = ctx.services.clock.now_ms()
    expires_ms = NO_EXPIRY
    if request.retention_time_ms >= 0:
        expires_ms = min(now_ms + request.retention_time_ms, MAX_TIME_MS)
    # A partition that is named twice is committed once, as it is named last.
    accepted: dict[TopicPartition, CommittedOffset] = {}
    topics = []
    for topic in request.topics:
        result = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        topics.append(result)
        for partitions in slices(topic.partitions):
            result.partitions += _accept(ctx, topic, partitions, now_ms, expires_ms, accepted)
            yield
    by = Commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        knows_epochs=ctx.api_version >= MEMBER_EPOCHS_FROM,
    )
    response = OffsetCommitResponse(topics=topics)
    try:
        ctx.services.groups.commit(request.group_id, by, accepted.items())
    except KafkaError as error:
        return _failed(response, error)
    return ctx.services.groups.settled(request.group_id, response, partial(_failed, response))


def _failed(response: OffsetCommitResponse, error: KafkaError) -> OffsetCommitResponse:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = error.error
    return response


def _accept(
    ctx: Context,
    topic: OffsetCommitRequestTopic,
    partitions: list[OffsetCommitRequestPartition],
    now_ms: int,
    expires_ms: int,
    accepted: dict[TopicPartition, CommittedOffset],
) -> list[OffsetCommitResponsePartition]:
    results: list[OffsetCommitResponsePartition] = []
    if ctx.api_version >= TOPIC_IDS_FROM:
        known, unknown = ctx.image.by_id.get(topic.topic_id), Error.UNKNOWN_TOPIC_ID
    else:
        known, unknown = ctx.image.topics.get(topic.name), Error.UNKNOWN_TOPIC_OR_PARTITION
    max_metadata_bytes = ctx.services.config.offset_metadata_max_bytes
    for asked in partitions:
        index, metadata = asked.partition_index, asked.committed_metadata or ""
        if known is None:
            error = unknown
        elif not 0 <= index < known.partitions:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif metadata and len(metadata.encode()) > max_metadata_bytes:
            error = Error.OFFSET_METADATA_TOO_LARGE
        else:
            error = Error.NONE
            committed = CommittedOffset(
                asked.committed_offset,
                asked.committed_leader_epoch,
                metadata,
                now_ms,
                expires_ms,
                known.topic_id,
            )
            accepted[known.name, index] = committed
        results.append(OffsetCommitResponsePartition(index, error))
    return results
