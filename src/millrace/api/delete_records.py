"""DeleteRecords v0-2: moves the start of a log. v2: flexible."""

from __future__ import annotations

import logging

from millrace.api.context import Context
from millrace.cluster.image import INTERNAL_TOPICS
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.steps import Turn
from millrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger(__name__)

_HIGH_WATERMARK = -1


async def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    turn = Turn()
    moved: list[Partition] = []
    response = DeleteRecordsResponse()
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for wanted in topic.partitions:
            result.partitions.append(_delete(ctx, topic.name, wanted, moved))
            await turn.end_step()
    # Without a checkpoint now, a killed broker would bring the deleted records back.
    for write in ctx.services.partitions.moved_log_starts(moved):
        try:
            await ctx.services.run_in_thread(write)
        except OSError as failure:
            # The disk may be full, and the deletion meant to free space: it holds, and is checkpointed later.
            logger.error("cannot checkpoint which records were deleted: %s", failure)
    return response


def _delete(
    ctx: Context, topic: str, wanted: DeleteRecordsPartition, moved: list[Partition]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
            )
        partition = ctx.services.partitions.leader(topic, wanted.partition_index)
        result.low_watermark = _delete_before(partition, wanted.offset)
        moved.append(partition)
    except KafkaError as error:
        result.low_watermark = -1
        result.error_code = error.error
    return result


def _delete_before(partition: Partition, offset: int) -> int:
    policy = partition.log.config.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        raise KafkaError(Error.POLICY_VIOLATION, "a compacted topic's records are not deleted by offset")
    if offset == _HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if offset <= partition.log.log_start_offset:
        return partition.log.log_start_offset
    return partition.log.delete_records_before(offset)
