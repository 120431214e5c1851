"""EndTxn v0-5. v2: PRODUCER_FENCED. v3: flexible. v5: an epoch for each transaction (KIP-890)."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.txn.transaction_state import EPOCH_PER_TRANSACTION, OLD_PROTOCOL, ProducerIdentity
from millrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_FROM = 2
EPOCH_PER_TRANSACTION_FROM = 5


def handle(ctx: Context, request: EndTxnRequest) -> Eventual[EndTxnResponse]:
    try:
        producer = ctx.services.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            committed=request.committed,
            client_version=(
                EPOCH_PER_TRANSACTION if ctx.api_version >= EPOCH_PER_TRANSACTION_FROM else OLD_PROTOCOL
            ),
        )
    except KafkaError as error:
        if error.error is Error.PRODUCER_FENCED and ctx.api_version < PRODUCER_FENCED_FROM:
            raise KafkaError(Error.INVALID_PRODUCER_EPOCH) from error
        raise
    response = EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
    return ctx.services.transactions.settled(request.transactional_id, response)
