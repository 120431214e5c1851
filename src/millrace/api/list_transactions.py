"""ListTransactions v0-2. v1: by duration. v2: by a pattern of the transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps
from millrace.txn.transaction_state import STATES_BY_LABEL, Transaction
from millrace.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(ctx: Context, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    if ctx.services.transactions.runtime.is_loading:
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
    is_wanted = _filter(request, ctx.services.clock.now_ms())
    unknown = [state for state in request.state_filters if state not in STATES_BY_LABEL]
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    for transaction in list(ctx.services.transactions):
        resource = Resource(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        if is_wanted(transaction) and ctx.allows(Operation.DESCRIBE, resource):
            response.transaction_states.append(
                TransactionState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.label,
                )
            )
        yield
    return response


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    labels = set(request.state_filters)
    producer_ids = set(request.producer_id_filters)
    pattern = _compile(request.transactional_id_pattern)

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not labels or transaction.state.label in labels)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
        )

    return is_wanted


def _compile(pattern: str | None) -> Any:
    """Compile with RE2, in which no pattern takes exponential time."""
    if not pattern:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is not valid") from error
