"""ListOffsets v1-11. v4: leader epochs. v6: flexible. v7: max timestamp. v8, v9, v11: tiered storage."""

from __future__ import annotations

from collections import Counter

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.steps import Turn
from millrace.storage.inspection import FoundRecord
from millrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millrace.wire.records import read_header

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

LOWEST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
NOT_FOUND = FoundRecord(offset=-1, timestamp_ms=-1, leader_epoch=-1)


async def handle(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    turn = Turn()
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            named[topic.name, asked.partition_index] += 1
            await turn.end_step()
        await turn.end_step()
    response = ListOffsetsResponse()
    for topic in request.topics:
        of_topic = ListOffsetsTopicResponse(name=topic.name)
        for asked in topic.partitions:
            is_repeated = named[topic.name, asked.partition_index] > 1
            found = await _find(ctx, topic.name, asked, request.isolation_level, is_repeated)
            of_topic.partitions.append(found)
            await turn.end_step()
        response.topics.append(of_topic)
        await turn.end_step()
    return response


async def _find(
    ctx: Context, topic: str, asked: ListOffsetsPartition, isolation_level: int, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if is_repeated:
            raise KafkaError(Error.INVALID_REQUEST, "A partition is named twice.")
        partition = ctx.services.partitions.leader(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if asked.timestamp < 0 and ctx.api_version < LOWEST_VERSION.get(asked.timestamp, 0):
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        found = await _offset(ctx, partition, asked.timestamp, isolation_level == READ_COMMITTED) or NOT_FOUND
    except KafkaError as error:
        response.error_code = error.error
        return response
    response.offset = found.offset
    response.timestamp = found.timestamp_ms
    response.leader_epoch = found.leader_epoch
    return response


async def _offset(
    ctx: Context, partition: Partition, timestamp: int, reads_committed: bool
) -> FoundRecord | None:
    log = partition.log
    end = partition.last_stable_offset if reads_committed else partition.high_watermark
    if timestamp == LATEST:
        return FoundRecord(offset=end, timestamp_ms=-1, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return FoundRecord(offset=start, timestamp_ms=-1, leader_epoch=partition.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    if timestamp == MAX_TIMESTAMP:
        found = await _newest(ctx, partition)
    elif timestamp < 0:
        raise KafkaError(Error.UNSUPPORTED_VERSION, f"There is no special timestamp {timestamp}.")
    else:
        found = await _first_at_or_after(ctx, partition, timestamp)
    # A record that the client cannot fetch yet does not count.
    return found if found is not None and found.offset < end else None


async def _newest(ctx: Context, partition: Partition) -> FoundRecord | None:
    batch = partition.log.newest_batch()
    if batch is None:
        return None
    timestamp_ms = read_header(batch).max_timestamp
    return await ctx.services.inspector.find(batch, timestamp_ms, 0, partition.log.directory.name)


async def _first_at_or_after(ctx: Context, partition: Partition, timestamp_ms: int) -> FoundRecord | None:
    """The first record that is not older; batches whose headers promise one and do not hold it are passed."""
    turn = Turn()
    log, inspector = partition.log, ctx.services.inspector
    start_offset = log.log_start_offset
    while (batch := log.batch_by_timestamp(timestamp_ms, start_offset)) is not None:
        found = await inspector.find(batch, timestamp_ms, start_offset, log.directory.name)
        if found is not None:
            return found
        start_offset = read_header(batch).next_offset
        await turn.end_step()
    return None
