"""Heartbeat v0-4. v1: throttle time. v3: static members. v4: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        ctx.groups.classic.heartbeat(request)
    except KafkaError as error:
        # A member of a group that is still being read back has no reason to worry.
        if error.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
            raise
    return HeartbeatResponse()
