"""ListOffsets v1-11. v4: leader epochs. v6: flexible. v7: max timestamp. v8, v9, v11: tiered storage."""

from __future__ import annotations

from collections import Counter
from functools import partial

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.steps import Steps, each
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


def handle(ctx: Context, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            named[topic.name, asked.partition_index] += 1
            yield
        yield
    response = ListOffsetsResponse()
    for topic in request.topics:
        find = partial(_find, ctx, topic.name, named, request.isolation_level)
        partitions = yield from each(topic.partitions, find)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    return response


def _find(
    ctx: Context,
    topic: str,
    named: Counter[tuple[str, int]],
    isolation_level: int,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if named[topic, asked.partition_index] > 1:
            raise KafkaError(Error.INVALID_REQUEST, "A partition is named twice.")
        partition = ctx.services.partitions.leader(topic, asked.partition_index)
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
        raise KafkaError(Error.UNSUPPORTED_VERSION, f"There is no special timestamp {timestamp}.")
    else:
        found = log.offset_for_timestamp(timestamp)
    # A record that the client cannot fetch yet does not count.
    return found if found is not None and found.offset < end else None
