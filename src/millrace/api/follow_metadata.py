"""FollowMetadata v0: a broker asks the controller for the next image, and waits for it."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster.controller import Version
from millrace.wire.messages.follow_metadata import FollowMetadataRequest, FollowMetadataResponse


async def handle(ctx: Context, request: FollowMetadataRequest) -> FollowMetadataResponse:
    found = await ctx.services.member.controller.next_image(
        request.broker_id,
        request.broker_epoch,
        Version(request.controller_epoch, request.number),
        request.max_wait_ms / 1000,
    )
    return FollowMetadataResponse(
        controller_epoch=found.version.controller_epoch,
        number=found.version.number,
        is_whole=found.is_whole,
        change=found.change,
    )
