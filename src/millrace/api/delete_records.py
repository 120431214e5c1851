"""DeleteRecords v0-2: moves the start of a log. v2: flexible."""

from __future__ import annotations

import logging
from functools import partial

from millrace.api.context import Context
from millrace.cluster.image import INTERNAL_TOPICS
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.steps import Steps, each
from millrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger(__name__)

_HIGH_WATERMARK = -1


def handle(ctx: Context, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        partitions = yield from each(topic.partitions, partial(_delete, ctx, topic.name))
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield
    # Without a checkpoint now, a killed broker would bring the deleted records back.
    try:
        ctx.partitions.checkpoint()
    except OSError as failure:
        # The disk may be full, and the deletion meant to free space: it holds, and is checkpointed later.
        logger.error("cannot checkpoint which records were deleted: %s", failure)
    return response


def _delete(ctx: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
            )
        partition = ctx.partitions.leader(topic, asked.partition_index)
        result.low_watermark = _delete_before(partition, asked.offset)
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
