"""AlterPartition v3: a leader asks the controller for other replicas in sync."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster.controller_requests import alter_partition_response, isr_requests
from millrace.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(ctx: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    controller = ctx.services.member.controller
    requests = isr_requests(request)
    outcomes = await controller.alter_isrs(request.broker_id, request.broker_epoch, requests)
    return alter_partition_response(outcomes)
