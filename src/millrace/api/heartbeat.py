"""Heartbeat v0-4. v1: throttle time. v3: static members. v4: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.groups.classic_requests import MemberIdentity
from millrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        member = MemberIdentity(request.member_id, request.group_instance_id)
        ctx.services.groups.classic.heartbeat(request.group_id, member, request.generation_id)
    except KafkaError as error:
        # While the group is loaded its members need not join again.
        if error.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
            raise
    return HeartbeatResponse()
