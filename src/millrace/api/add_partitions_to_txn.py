"""AddPartitionsToTxn v0-5. v2: PRODUCER_FENCED. v3: flexible. v4: several transactions, verify-only.

Clients use v0-3; v4 and v5 are what brokers send each other. v5: on behalf of clients with an epoch for each
transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.api.context import Context
from millrace.cluster.image import INTERNAL_TOPICS
from millrace.errors import Error, KafkaError
from millrace.txn.transaction import EPOCH_PER_TRANSACTION, OLD_PROTOCOL, ProducerIdentity, TopicPartition
from millrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

PRODUCER_FENCED_FROM = 2
SEVERAL_TRANSACTIONS_FROM = 4
EPOCH_PER_TRANSACTION_FROM = 5


def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if ctx.api_version < SEVERAL_TRANSACTIONS_FROM:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_add(ctx, transaction))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_add(ctx, transaction)
            )
            for transaction in request.transactions
        ]
    )


def _add(ctx: Context, transaction: AddPartitionsToTxnTransaction) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [(topic.name, partition) for topic in transaction.topics for partition in topic.partitions]
    refused = {partition: error for partition in partitions if (error := _refusal(ctx, *partition))}
    if refused:
        outcome = {
            partition: refused.get(partition, Error.OPERATION_NOT_ATTEMPTED) for partition in partitions
        }
    else:
        outcome = _outcome(ctx, transaction, partitions)
    return [_topic_result(topic, outcome) for topic in transaction.topics]


def _refusal(ctx: Context, topic: str, partition: int) -> Error:
    if ctx.api_version < SEVERAL_TRANSACTIONS_FROM and topic in INTERNAL_TOPICS:
        # Only coordinators write there; a group's offsets are added with AddOffsetsToTxn.
        return Error.TOPIC_AUTHORIZATION_FAILED
    known = ctx.image.topics.get(topic)
    if known is None or not 0 <= partition < known.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE


def _outcome(
    ctx: Context, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Error]:
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return ctx.transactions.check_partitions(transaction.transactional_id, producer, partitions)
        ctx.transactions.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            EPOCH_PER_TRANSACTION if ctx.api_version >= EPOCH_PER_TRANSACTION_FROM else OLD_PROTOCOL,
        )
    except KafkaError as error:
        code = error.error
        if code is Error.PRODUCER_FENCED and ctx.api_version < PRODUCER_FENCED_FROM:
            code = Error.INVALID_PRODUCER_EPOCH
        return dict.fromkeys(partitions, code)
    return dict.fromkeys(partitions, Error.NONE)


def _topic_result(
    topic: AddPartitionsToTxnTopic, outcome: dict[TopicPartition, Error]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=outcome[topic.name, partition]
            )
            for partition in topic.partitions
        ],
    )
