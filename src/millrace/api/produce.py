"""Produce v3-13 (advertised from 0). v7: zstd. v9: flexible. v10: the current leader. v13: topic ids.

Transactions (KIP-890): v11 clients know TRANSACTION_ABORTABLE. From v12 on a first batch makes its partition
part of the transaction; before, it must have been added.

Appends are in the page cache when this returns. With acks=all the response also waits until they are
committed; with one replica they are at once, and min.insync.replicas asks for no more than there are. Batches
that take long to inspect, and those that must reach the disk, are finished by a coroutine.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from millrace.api.context import Context
from millrace.api.current_leaders import CurrentLeaders
from millrace.cluster.image import INTERNAL_TOPICS
from millrace.deferred import Deferred, Eventual
from millrace.errors import Error, KafkaError
from millrace.net.replies import CloseConnection
from millrace.replication.partition import Partition
from millrace.replication.waiting import ParkedProduce
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.inspection import Inspect, InvalidRecords
from millrace.storage.inspector import LateInspection, Postponed
from millrace.storage.log import Appended
from millrace.wire.compression import Codec
from millrace.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millrace.wire.records import CODEC_MASK, HEADER_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_FROM = 7
CURRENT_LEADERS_FROM = 10
KNOWS_ABORTABLE_FROM = 11
JOINS_TRANSACTIONS_FROM = 12
TOPIC_IDS_FROM = 13
# As in Kafka, whose tools write to internal topics under this name.
ADMIN_CLIENT_ID = "__admin_client"


class LateVerification:
    """A copy of a transaction's first batch on a partition, which waits for the coordinator's consent."""

    __slots__ = ("_agreed", "records", "result")

    def __init__(self, agreed: Deferred[None], records: memoryview, inspect: Inspect) -> None:
        self.records = memoryview(bytes(records))
        self.result = inspect
        self._agreed = agreed

    async def wait(self) -> None:
        """Return once the coordinator agrees; raises KafkaError if it does not."""
        await self._agreed


class Unverified(Exception):
    """A batch cannot be appended before the coordinator of its transaction agrees."""

    def __init__(self, verification: LateVerification) -> None:
        super().__init__("the coordinator is asked about the batch")
        self.verification = verification


class LateAppend(NamedTuple):
    """A batch that is appended once it is verified or inspected, and the place of its response."""

    topic: str
    partition: int
    waits_for: LateInspection | LateVerification
    responses: list[PartitionProduceResponse]
    position: int


class Unflushed(NamedTuple):
    """A response that waits until its log is on disk."""

    partition: Partition
    response: PartitionProduceResponse


class Uncommitted(NamedTuple):
    """A response that waits until its records are committed."""

    committed: Deferred[None]
    response: PartitionProduceResponse


class Moved(NamedTuple):
    """A refusal that is to name the leader."""

    response: PartitionProduceResponse


Unfinished: TypeAlias = list[LateAppend | Unflushed | Uncommitted | Moved]
"""The parts of a request that are not done with the append: mostly none."""


# Errors of the coordinator that older clients do not retry, or retry only after a metadata request.
UNVERIFIED = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)


def handle(
    ctx: Context, request: ProduceRequest
) -> Eventual[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None:
    unfinished: Unfinished = []
    responses: list[TopicProduceResponse] = []
    ctx.services.inspector.begin_request()
    for topic in request.topic_data:
        responses.append(_append_topic(ctx, request, topic, unfinished))
    if ctx.services.woken.waiting:
        # Consumers get these records before their producer hears that they are there.
        ctx.services.woken.answer_next()
    if not unfinished:
        return _response(request, responses)
    if any(isinstance(part, LateAppend | Unflushed) for part in unfinished):
        # The views in it are of memory that the next request is received into.
        request.topic_data = []
        return _finish(ctx, request, unfinished, responses)
    response = _response(request, responses)
    return None if response is None else _when_committed(ctx, request, unfinished, response)


async def _finish(
    ctx: Context, request: ProduceRequest, unfinished: Unfinished, responses: list[TopicProduceResponse]
) -> ProduceResponse | None:
    """Append what had to be inspected elsewhere, and wait for the disk where flush.messages says so.

    The client's next request waits for this one, so its batches stay in order.
    """
    for late in [part for part in unfinished if isinstance(part, LateAppend)]:
        late.responses[late.position] = await _append_late(ctx, request, late, unfinished)
    if ctx.services.woken.waiting:
        ctx.services.woken.answer_next()
    for part in unfinished:
        if isinstance(part, Unflushed):
            await _flush(ctx, *part)
    response = _response(request, responses)
    if response is None:
        return None
    committed = _when_committed(ctx, request, unfinished, response)
    return await committed if isinstance(committed, Deferred) else committed


async def _append_late(
    ctx: Context, request: ProduceRequest, append: LateAppend, unfinished: Unfinished
) -> PartitionProduceResponse:
    topic, index, late = append.topic, append.partition, append.waits_for
    is_verified = False
    while True:
        try:
            await late.wait()
            is_verified |= isinstance(late, LateVerification)
            return _append(
                ctx, request, topic, index, late.records, late.result, unfinished, is_verified=is_verified
            )
        except KafkaError as error:
            return _failed(index, error)
        except Postponed as postponed:
            # It was verified first, or the topic's configuration changed meanwhile.
            late = postponed.inspection
        except Unverified as unverified:
            late = unverified.verification


async def _flush(ctx: Context, partition: Partition, response: PartitionProduceResponse) -> None:
    try:
        flush = partition.log.begin_flush()
        if flush is not None:
            await ctx.services.run_in_thread(flush.run)
            flush.complete()
    except (OSError, KafkaError) as failure:
        logger.error("cannot flush %s-%d: %s", partition.topic, partition.index, failure)
        # The records are not safe yet. A client that sends them again gets a success once they are.
        message = f"Cannot flush {partition.topic}-{partition.index}"
        _note_failure(response, KafkaError(Error.KAFKA_STORAGE_ERROR, message))


def _response(request: ProduceRequest, responses: list[TopicProduceResponse]) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        _close_on_error(responses)
        return None
    return ProduceResponse(responses=responses)


def _with_leaders(ctx: Context, response: ProduceResponse) -> ProduceResponse:
    """The response with the leaders of partitions that this broker does not lead (any more)."""
    if ctx.api_version < CURRENT_LEADERS_FROM:
        return response
    leaders = CurrentLeaders(ctx)
    for topic in response.responses:
        name = leaders.name_of(topic.name, topic.topic_id)
        for partition in topic.partition_responses:
            if partition.error_code == Error.NOT_LEADER_OR_FOLLOWER:
                partition.current_leader = leaders.find(name, partition.index)
    response.node_endpoints = leaders.endpoints
    return response


def _when_committed(
    ctx: Context, request: ProduceRequest, unfinished: Unfinished, response: ProduceResponse
) -> Eventual[ProduceResponse]:
    """The response once its records are committed, each partition with its own outcome."""
    waits = [
        (part.committed, partial(_note_failure, part.response))
        for part in unfinished
        if isinstance(part, Uncommitted)
    ]
    if not waits:
        return _with_leaders(ctx, response)
    parked = ParkedProduce(ctx.services.woken, waits, request.timeout_ms)
    return parked.done.convert(lambda _: _with_leaders(ctx, response))


def _note_failure(response: PartitionProduceResponse, error: KafkaError) -> None:
    response.error_code = error.error
    response.error_message = error.message
    response.base_offset = -1


def _append_topic(
    ctx: Context, request: ProduceRequest, data: TopicProduceData, unfinished: Unfinished
) -> TopicProduceResponse:
    response = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    try:
        name = (
            ctx.services.partitions.topic_name(data.topic_id)
            if ctx.api_version >= TOPIC_IDS_FROM
            else data.name
        )
        if name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
            # What coordinators keep there is theirs alone to write.
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
    except KafkaError as error:
        response.partition_responses = [_failed(partition.index, error) for partition in data.partition_data]
        return response
    responses, inspect = response.partition_responses, ctx.services.inspector.inspect
    for partition in data.partition_data:
        index = partition.index
        try:
            appended = _append(ctx, request, name, index, partition.records, inspect, unfinished)
        except (Postponed, Unverified) as late:
            waits_for = late.inspection if isinstance(late, Postponed) else late.verification
            unfinished.append(LateAppend(name, index, waits_for, responses, len(responses)))
            appended = PartitionProduceResponse(index=index)
        responses.append(appended)
    return response


def _append(
    ctx: Context,
    request: ProduceRequest,
    topic: str,
    index: int,
    records: memoryview | None,
    inspect: Inspect,
    unfinished: Unfinished,
    *,
    is_verified: bool = False,
) -> PartitionProduceResponse:
    acks = request.acks
    try:
        partition = ctx.services.partitions.leader(topic, index)
        if acks not in (ACKS_LEADER, ACKS_ALL, ACKS_NONE):
            raise KafkaError(Error.INVALID_REQUIRED_ACKS)
        if partition.lacks_replicas and acks == ACKS_ALL:
            raise KafkaError(Error.NOT_ENOUGH_REPLICAS)
        if records is None:
            raise KafkaError(Error.INVALID_RECORD, f"no records for {topic}-{index}")
        if ctx.api_version < ZSTD_FROM:
            _refuse_zstd(records)
        if request.transactional_id is None:
            appended = partition.append_as_leader(records, inspect=inspect)
        else:
            transactional_id = None if is_verified else request.transactional_id
            appended = _append_transactional(ctx, transactional_id, partition, records, inspect)
    except KafkaError as error:
        refusal = _failed(index, error)
        if error.error is Error.NOT_LEADER_OR_FOLLOWER:
            unfinished.append(Moved(refusal))
        return refusal
    response = PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    if partition.log.awaits_flush:
        unfinished.append(Unflushed(partition, response))
    if partition.is_replicated and acks == ACKS_ALL:
        # Promised now: later, this broker may lead in another epoch or not at all.
        unfinished.append(Uncommitted(partition.committed(appended.last_offset + 1), response))
    return response


def _refuse_zstd(records: memoryview) -> None:
    """Clients this old cannot decode zstd."""
    if len(records) >= HEADER_BYTES and read_header(records).attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            Error.UNSUPPORTED_COMPRESSION_TYPE, f"Zstandard needs Produce from version {ZSTD_FROM} on"
        )


def _append_transactional(
    ctx: Context, transactional_id: str | None, partition: Partition, records: memoryview, inspect: Inspect
) -> Appended:
    """Append a batch of a transaction; without an id the coordinator has agreed to it already."""
    if len(records) < HEADER_BYTES:
        return partition.append_as_leader(records)
    header = read_header(records)
    if not header.is_transactional or header.base_sequence < 0:
        return partition.append_as_leader(records, inspect=inspect)
    joins = ctx.api_version >= JOINS_TRANSACTIONS_FROM
    producers = partition.log.producers
    begins = producers.begins_transaction(header, ctx.services.clock.now_ms(), bumps_epochs=joins)
    if begins and transactional_id is not None:
        agreed = _verify(ctx, transactional_id, partition, header, joins)
        if not agreed.resolved:
            raise Unverified(LateVerification(agreed, records, inspect))
        agreed.result()
    return partition.append_as_leader(records, AppendOrigin.TRANSACTION, inspect)


def _verify(
    ctx: Context, transactional_id: str, partition: Partition, header: BatchHeader, joins: bool
) -> Deferred[None]:
    """Let the coordinator agree to the transaction's first batch on a partition."""

    def refuse(error: BaseException) -> None:
        if isinstance(error, KafkaError) and (
            error.error in UNVERIFIED or (error.error is Error.CONCURRENT_TRANSACTIONS and not joins)
        ):
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. Underlying error: "
                f"{error.error.name}",
            ) from error
        raise error

    return (
        (ctx.services.verification or ctx.services.transactions)
        .verify(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            partition.topic,
            partition.index,
            joins=joins,
            knows_abortable=ctx.api_version >= KNOWS_ABORTABLE_FROM,
        )
        .convert(lambda _: None, refuse)
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
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{partition.index} failed: {reason}"
                )
