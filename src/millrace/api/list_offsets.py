"""ListOffsets v1-11. v4: leader epochs. v6: flexible. v7: max timestamp. v8, v9, v11: tiered storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.storage.timestamps import TimestampOffset
from millrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

LOWEST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
NOT_FOUND = TimestampOffset(offset=-1, timestamp_ms=-1, leader_epoch=-1)


def handle(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = request.isolation_level
    named = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    repeated = {partition for partition, times in named.items() if times > 1}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_find(ctx, topic.name, asked, isolation, repeated) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(
    ctx: Context,
    topic: str,
    asked: ListOffsetsPartition,
    isolation_level: int,
    repeated: Collection[tuple[str, int]],
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if (topic, asked.partition_index) in repeated:
            raise KafkaError(Error.INVALID_REQUEST)
        partition = ctx.partitions.leader(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if asked.timestamp < 0 and ctx.api_version < LOWEST_VERSION.get(asked.timestamp, 0):
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        found = _offset(partition, asked.timestamp, isolation_level == READ_COMMITTED) or NOT_FOUND
    except KafkaError as error:
        response.error_code = error.error
        return response
    response.offset = found.offset
    response.timestamp = found.timestamp_ms
    response.leader_epoch = found.leader_epoch
    return response


def _offset(partition: Partition, timestamp: int, reads_committed: bool) -> TimestampOffset | None:
    log = partition.log
    end = partition.last_stable_offset if reads_committed else partition.high_watermark
    if timestamp == LATEST:
        return TimestampOffset(offset=end, timestamp_ms=-1, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(offset=start, timestamp_ms=-1, leader_epoch=partition.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset()
    elif timestamp < 0:
        raise KafkaError(Error.UNSUPPORTED_VERSION, f"no offset goes by the special timestamp {timestamp}")
    else:
        found = log.offset_for_timestamp(timestamp)
    # A record that the client cannot fetch yet is not there for it.
    return found if found is not None and found.offset < end else None
