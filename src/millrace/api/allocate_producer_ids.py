"""AllocateProducerIds v0: a broker asks the controller for producer ids to give out."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def handle(ctx: Context, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    controller = ctx.services.member.controller
    start, count = await controller.take_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=count)
