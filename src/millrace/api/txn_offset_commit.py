"""TxnOffsetCommit v0-5. v2: leader epochs. v3: flexible, group membership. v5: needs no AddOffsetsToTxn."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import TransactionalCommit
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset, TopicPartition
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

KNOWS_ABORTABLE_FROM = 4
JOINS_BY_ITSELF_FROM = 5


def handle(ctx: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    accepted: list[tuple[TopicPartition, CommittedOffset]] = []
    topics = [_take(ctx, topic, accepted) for topic in request.topics]
    by = Commit(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        api_version=ctx.api_version,
        is_transactional=True,
    )
    try:
        _check_transaction(ctx, request)
        ctx.groups.commit(
            request.group_id, by, accepted, TransactionalCommit(request.producer_id, request.producer_epoch)
        )
    except KafkaError as error:
        for topic in topics:
            for partition in topic.partitions:
                partition.error_code = error.error
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


def _take(
    ctx: Context,
    topic: TxnOffsetCommitRequestTopic,
    accepted: list[tuple[TopicPartition, CommittedOffset]],
) -> TxnOffsetCommitResponseTopic:
    response = TxnOffsetCommitResponseTopic(name=topic.name)
    known = ctx.image.topics.get(topic.name)
    for asked in topic.partitions:
        if known is None or not 0 <= asked.partition_index < known.partitions:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif len((asked.committed_metadata or "").encode()) > ctx.config.offset_metadata_max_bytes:
            error = Error.OFFSET_METADATA_TOO_LARGE
        else:
            error = Error.NONE
            committed = CommittedOffset(
                offset=asked.committed_offset,
                leader_epoch=asked.committed_leader_epoch,
                metadata=asked.committed_metadata or "",
                commit_timestamp=ctx.clock.now_ms(),
                topic_id=known.topic_id,
            )
            accepted.append(((topic.name, asked.partition_index), committed))
        response.partitions.append(
            TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
        )
    return response
