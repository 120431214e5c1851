"""TxnOffsetCommit v0-5. v2: leader epochs. v3: flexible, group membership. v5: needs no AddOffsetsToTxn."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
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


def handle(ctx: Context, request: TxnOffsetCommitRequest) -> Steps[TxnOffsetCommitResponse]:
    # A partition that is named twice is committed once, as it is named last.
    accepted: dict[TopicPartition, CommittedOffset] = {}
    topics = []
    for topic in request.topics:
        partitions = yield from each(topic.partitions, partial(_accept, ctx, topic.name, accepted))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions))
        yield
    by = Commit(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        is_transactional=True,
    )
    try:
        _check_transaction(ctx, request)
        ctx.groups.commit(
            request.group_id,
            by,
            accepted.items(),
            TransactionalCommit(request.producer_id, request.producer_epoch),
        )
    except KafkaError as error:
        for result in topics:
            for partition in result.partitions:
                partition.error_code = error.error
            yield
    return TxnOffsetCommitResponse(topics=topics)


def _check_transaction(ctx: Context, request: TxnOffsetCommitRequest) -> None:
    """The group's partition must be part of the producer's transaction; from v5 on it joins by itself."""
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    ctx.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        ctx.groups.runtime.topic,
        ctx.groups.runtime.partition_of(request.group_id),
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
    elif len((asked.committed_metadata or "").encode()) > ctx.config.offset_metadata_max_bytes:
        error = Error.OFFSET_METADATA_TOO_LARGE
    else:
        error = Error.NONE
        accepted[topic, asked.partition_index] = CommittedOffset(
            offset=asked.committed_offset,
            leader_epoch=asked.committed_leader_epoch,
            metadata=asked.committed_metadata or "",
            commit_timestamp=ctx.clock.now_ms(),
            topic_id=known.topic_id,
        )
    return TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
