"""OffsetForLeaderEpoch v2-4: the end offset of a leader epoch, by which clients detect truncation."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.errors import KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        partitions = yield from each(topic.partitions, partial(_find, ctx, topic.topic))
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield
    return response


def _find(ctx: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=asked.partition)
    try:
        partition = ctx.services.partitions.leader(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        result.leader_epoch, result.end_offset = partition.epoch_end_offset(asked.leader_epoch)
    except KafkaError as error:
        result.error_code = error.error
    return result
