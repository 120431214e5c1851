"""Produce v3-13 (advertised from 0). v9: flexible. v10: new leader in the answer. v13: topic ids.

Appends are in the page cache when this returns: with one replica, acks=1 and acks=all are the same.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.net.connection import CloseConnection
from millrace.replication.partition import Partition
from millrace.storage.validation import InvalidRecords
from millrace.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
TOPIC_IDS_FROM = 13


def handle(
    ctx: Context, request: ProduceRequest
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    unflushed: list[Partition] = []
    responses = [_append_topic(ctx, topic, request.acks, unflushed) for topic in request.topic_data]
    if request.acks == ACKS_NONE:
        _close_on_error(responses)
        response = None
    else:
        response = ProduceResponse(responses=responses)
    return _after_flush(ctx, unflushed, response) if unflushed else response


async def _after_flush(
    ctx: Context, partitions: list[Partition], response: ProduceResponse | None
) -> ProduceResponse | None:
    """Where flush.messages says so, the answer waits for the disk."""
    for partition in partitions:
        flush = partition.log.begin_flush()
        if flush is not None:
            await ctx.run_in_thread(flush.run)
            flush.complete()
    return response


def _append_topic(
    ctx: Context, data: TopicProduceData, acks: int, unflushed: list[Partition]
) -> TopicProduceResponse:
    response = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    try:
        name = ctx.partitions.topic_name(data.topic_id) if ctx.api_version >= TOPIC_IDS_FROM else data.name
    except KafkaError as error:
        response.partition_responses = [_failed(partition.index, error) for partition in data.partition_data]
        return response
    response.partition_responses = [
        _append(ctx, name, partition, acks, unflushed) for partition in data.partition_data
    ]
    return response


def _append(
    ctx: Context, topic: str, data: PartitionProduceData, acks: int, unflushed: list[Partition]
) -> PartitionProduceResponse:
    try:
        partition = ctx.partitions.get(topic, data.index)
        if acks not in (ACKS_LEADER, ACKS_ALL, ACKS_NONE):
            raise KafkaError(Error.INVALID_REQUIRED_ACKS)
        if acks == ACKS_ALL and partition.log.config.min_insync_replicas > 1:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {partition.log.config.min_insync_replicas} and there is one replica",
            )
        if data.records is None:
            raise KafkaError(Error.INVALID_RECORD, f"no records for {topic}-{data.index}")
        appended = partition.append(data.records)
    except KafkaError as error:
        return _failed(data.index, error)
    if partition.log.unflushed_messages >= partition.log.config.flush_messages:
        unflushed.append(partition)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.error, error_message=error.message, base_offset=-1
    )
    if isinstance(error, InvalidRecords):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    return response


def _close_on_error(responses: list[TopicProduceResponse]) -> None:
    """A client that wants no answer learns of a failure only by losing its connection."""
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                reason = partition.error_message or f"error {partition.error_code}"
                raise CloseConnection(f"produce with acks=0 to {topic.name}-{partition.index} failed: {reason}")
