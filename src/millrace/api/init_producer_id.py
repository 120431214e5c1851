"""InitProducerId v0-5. v2: flexible. v3: a producer may name the id and epoch it had. v4: PRODUCER_FENCED."""

from __future__ import annotations

import logging

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from millrace.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger(__name__)

PRODUCER_FENCED_FROM = 4


def handle(ctx: Context, request: InitProducerIdRequest) -> Eventual[InitProducerIdResponse]:
    try:
        producer = _identity(ctx, request)
    except KafkaError as error:
        if error.error is Error.PRODUCER_FENCED and ctx.api_version < PRODUCER_FENCED_FROM:
            error = KafkaError(Error.INVALID_PRODUCER_EPOCH)
        return _failed(error)
    response = InitProducerIdResponse(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )
    if request.transactional_id is None:
        return response
    return ctx.services.transactions.settled(request.transactional_id, response, _failed)


def _failed(error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.error, producer_epoch=NO_PRODUCER_EPOCH)


def _identity(ctx: Context, request: InitProducerIdRequest) -> ProducerIdentity:
    expected = _expected(request)
    if request.transactional_id is None:
        # A producer without transactions that asks again starts afresh, whatever id it had.
        return ProducerIdentity(_new_producer_id(ctx), 0)
    return ctx.services.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected
    )


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        raise KafkaError(Error.INVALID_REQUEST, "A producer names both its id and its epoch, or neither.")
    return ProducerIdentity(request.producer_id, request.producer_epoch) if has_id else None


def _new_producer_id(ctx: Context) -> int:
    try:
        return ctx.services.producer_ids.allocate()
    except OSError as error:
        logger.error("cannot write down the producer ids in use: %s", error)
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE) from error
