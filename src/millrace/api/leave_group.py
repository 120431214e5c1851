"""LeaveGroup v0-5. v1: throttle time. v3: several members, also by instance id. v4: flexible. v5: reasons."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

SEVERAL_MEMBERS_FROM = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if ctx.api_version >= SEVERAL_MEMBERS_FROM:
        return LeaveGroupResponse(members=ctx.groups.classic.leave(request.group_id, request.members))
    (outcome,) = ctx.groups.classic.leave(request.group_id, [MemberIdentity(member_id=request.member_id)])
    return LeaveGroupResponse(error_code=outcome.error_code)
