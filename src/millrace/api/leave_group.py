"""LeaveGroup v0-5. v1: throttle time. v3: several members, also by instance id. v4: flexible. v5: reasons."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.steps import Steps, slices
from millrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

SEVERAL_MEMBERS_FROM = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> Steps[LeaveGroupResponse]:
    if ctx.api_version >= SEVERAL_MEMBERS_FROM:
        response = LeaveGroupResponse()
        for members in slices(request.members):
            response.members += ctx.groups.classic.leave(request.group_id, members)
            yield
        return response
    (outcome,) = ctx.groups.classic.leave(request.group_id, [MemberIdentity(member_id=request.member_id)])
    return LeaveGroupResponse(error_code=outcome.error_code)
