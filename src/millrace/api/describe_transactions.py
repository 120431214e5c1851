"""DescribeTransactions v0."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps, each
from millrace.txn.transaction_state import State, Transaction
from millrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(ctx: Context, request: DescribeTransactionsRequest) -> Steps[DescribeTransactionsResponse]:
    # An id that is named twice is described once: its transaction may have many partitions.
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=(yield from each(ids, partial(_describe, ctx))))


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    try:
        transaction = _find(ctx, transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.error)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(ctx, transaction),
    )


def _find(ctx: Context, transactional_id: str) -> Transaction:
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    transaction = ctx.services.transactions.find(transactional_id)
    if transaction is None or transaction.state is State.DEAD:
        raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND)
    return transaction


def _topics(ctx: Context, transaction: Transaction) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(partition)
    return [
        data
        for topic, data in topics.items()
        if ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic))
    ]
