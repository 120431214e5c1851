"""InitProducerId v0-5. v2: flexible. v3: a producer may name the id and epoch it had."""

from __future__ import annotations

import logging

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger(__name__)


def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise KafkaError(Error.INVALID_REQUEST, "A transactional id must not be empty.")
    if request.transactional_id is not None:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "This broker does not offer transactions yet.")
    # A producer without transactions that asks again starts afresh, whatever id it had.
    try:
        return InitProducerIdResponse(producer_id=ctx.producer_ids.allocate(), producer_epoch=0)
    except OSError as error:
        logger.error("cannot write down the producer ids in use: %s", error)
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE) from error
