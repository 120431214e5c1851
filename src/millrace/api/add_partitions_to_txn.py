"""AddPartitionsToTxn v0-5. v2: PRODUCER_FENCED. v3: flexible. v4: several transactions, verify-only.

Clients send v0-3, brokers send each other v4 and v5. v5: for clients with an epoch for each transaction
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TypeAlias

from millrace.api.context import Context
from millrace.cluster.image import INTERNAL_TOPICS
from millrace.deferred import Eventual, gather
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps, each
from millrace.txn.transaction_state import (
    EPOCH_PER_TRANSACTION,
    OLD_PROTOCOL,
    ProducerIdentity,
    TopicPartition,
)
from millrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

PRODUCER_FENCED_FROM = 2
SEVERAL_TRANSACTIONS_FROM = 4
EPOCH_PER_TRANSACTION_FROM = 5


def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> Steps[Eventual[AddPartitionsToTxnResponse]]:
    if ctx.api_version < SEVERAL_TRANSACTIONS_FROM:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        added = yield from _add(ctx, transaction)
        return gather(
            [added], lambda of_one: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=of_one[0])
        )
    ids, results = [], []
    for transaction in request.transactions:
        ids.append(transaction.transactional_id)
        results.append((yield from _add(ctx, transaction)))
        yield
    return gather(
        results,
        lambda of_all: AddPartitionsToTxnResponse(
            results_by_transaction=list(map(AddPartitionsToTxnResult, ids, of_all))
        ),
    )


TopicResults: TypeAlias = list[AddPartitionsToTxnTopicResult]


def _add(ctx: Context, transaction: AddPartitionsToTxnTransaction) -> Steps[Eventual[TopicResults]]:
    outcome: dict[TopicPartition, Error] = {}
    for topic in transaction.topics:
        for partition in topic.partitions:
            outcome[topic.name, partition] = _refusal(ctx, topic.name, partition)
            yield
        yield
    transactional_id, transactions = transaction.transactional_id, ctx.services.transactions
    leadership = transactions.runtime.leadership(transactional_id)
    if any(outcome.values()):
        # One partition that cannot be added keeps all from being added.
        for topic_partition, error in outcome.items():
            outcome[topic_partition] = error or Error.OPERATION_NOT_ATTEMPTED
    else:
        outcome = _outcome(ctx, transaction, outcome)
    yield
    results = []
    for topic in transaction.topics:
        partitions = yield from each(topic.partitions, partial(_result, outcome, topic.name))
        results.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
        yield
    return transactions.settled(transactional_id, results, partial(_failed, results), since=leadership)


def _failed(results: TopicResults, error: KafkaError) -> TopicResults:
    for topic in results:
        for partition in topic.results_by_partition:
            partition.partition_error_code = error.error
    return results


def _refusal(ctx: Context, topic: str, partition: int) -> Error:
    is_client = ctx.api_version < SEVERAL_TRANSACTIONS_FROM
    if is_client and not ctx.allows(Operation.WRITE, Resource(ResourceType.TOPIC, topic)):
        return Error.TOPIC_AUTHORIZATION_FAILED
    if is_client and topic in INTERNAL_TOPICS:
        # Only coordinators write there; a group's offsets are added with AddOffsetsToTxn.
        return Error.TOPIC_AUTHORIZATION_FAILED
    known = ctx.image.topics.get(topic)
    if known is None or not 0 <= partition < known.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE


def _outcome(
    ctx: Context, transaction: AddPartitionsToTxnTransaction, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Error]:
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return ctx.services.transactions.check_partitions(
                transaction.transactional_id, producer, partitions
            )
        ctx.services.transactions.add_partitions(
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


def _result(
    outcome: dict[TopicPartition, Error], topic: str, partition: int
) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition, outcome[topic, partition])
