"""TxnOffsetCommit v0-5. v2: leader epochs. v3: flexible, group membership. v5: needs no AddOffsetsToTxn."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from millrace.api.context import Context
from millrace.deferred import Deferred, Eventual
from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import TransactionalCommit
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset, TopicPartition
from millrace.steps import Steps, each
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

KNOWS_ABORTABLE_FROM = 4
JOINS_BY_ITSELF_FROM = 5


def handle(
    ctx: Context, request: TxnOffsetCommitRequest
) -> Steps[Eventual[TxnOffsetCommitResponse] | Coroutine[Any, Any, TxnOffsetCommitResponse]]:
    # A partition that is named twice is committed once, as it is named last.
    accepted: dict[TopicPartition, CommittedOffset] = {}
    topics = []
    for topic in request.topics:
        partitions = yield from each(topic.partitions, partial(_accept, ctx, topic.name, accepted))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions))
        yield
    response = TxnOffsetCommitResponse(topics=topics)
    try:
        verified = _verify(ctx, request)
        if not verified.resolved:
            return _commit_later(verified, ctx, request, accepted, response)
        verified.result()
    except KafkaError as error:
        return _failed(response, error)
    return _commit(ctx, request, accepted, response)


async def _commit_later(
    verified: Deferred[None],
    ctx: Context,
    request: TxnOffsetCommitRequest,
    accepted: dict[TopicPartition, CommittedOffset],
    response: TxnOffsetCommitResponse,
) -> TxnOffsetCommitResponse:
    try:
        await verified
    except KafkaError as error:
        return _failed(response, error)
    committed = _commit(ctx, request, accepted, response)
    return await committed if isinstance(committed, Deferred) else committed


def _commit(
    ctx: Context,
    request: TxnOffsetCommitRequest,
    accepted: dict[TopicPartition, CommittedOffset],
    response: TxnOffsetCommitResponse,
) -> Eventual[TxnOffsetCommitResponse]:
    by = Commit(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        is_transactional=True,
    )
    try:
        ctx.services.groups.commit(
            request.group_id,
            by,
            accepted.items(),
            TransactionalCommit(request.producer_id, request.producer_epoch),
        )
    except KafkaError as error:
        return _failed(response, error)
    return ctx.services.groups.settled(request.group_id, response, partial(_failed, response))


def _failed(response: TxnOffsetCommitResponse, error: KafkaError) -> TxnOffsetCommitResponse:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = error.error
    return response


def _verify(ctx: Context, request: TxnOffsetCommitRequest) -> Deferred[None]:
    """The group's partition must be part of the producer's transaction; from v5 on it joins by itself."""
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    return ctx.services.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        ctx.services.groups.runtime.topic,
        ctx.services.groups.runtime.partition_of(request.group_id),
        joins=ctx.api_version >= JOINS_BY_ITSELF_FROM,
        knows_abortable=ctx.api_version >= KNOWS_ABORTABLE_FROM,
    )


def _accept(
    ctx: Context,
    topic: str,
    accepted: dict[TopicPartition, CommittedOffset],
    asked: TxnOffsetCommitRequestPartition,
) -> TxnOffsetCommitResponsePartition:
    known = ctx.image.topics.get(topic)
    if known is None or not 0 <= asked.partition_index < known.partitions:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    elif len((asked.committed_metadata or "").encode()) > ctx.services.config.offset_metadata_max_bytes:
        error = Error.OFFSET_METADATA_TOO_LARGE
    else:
        error = Error.NONE
        accepted[topic, asked.partition_index] = CommittedOffset(
            offset=asked.committed_offset,
            leader_epoch=asked.committed_leader_epoch,
            metadata=asked.committed_metadata or "",
            commit_timestamp=ctx.services.clock.now_ms(),
            topic_id=known.topic_id,
        )
    return TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
