"""OffsetForLeaderEpoch v2-4: where a leader epoch ended, for clients to check for truncation."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import KafkaError
from millrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_find(ctx, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _find(ctx: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=asked.partition)
    try:
        partition = ctx.partitions.leader(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        result.leader_epoch, result.end_offset = partition.epoch_end_offset(asked.leader_epoch)
    except KafkaError as error:
        result.error_code = error.error
    return result
