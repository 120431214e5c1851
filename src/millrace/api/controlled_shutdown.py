"""ControlledShutdown v3: a broker that is about to stop asks the controller to move its leaders."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(ctx: Context, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    controller = ctx.services.member.controller
    remaining = await controller.stop_broker(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic, index) for topic, index in remaining]
    )
