"""LeaveGroup v0-5. v1: throttle time. v3: several members, also by instance id. v4: flexible. v5: reasons."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.groups.classic_requests import MemberIdentity
from millrace.steps import Steps, slices
from millrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_MEMBERS_FROM = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> Steps[Eventual[LeaveGroupResponse]]:
    classic = ctx.services.groups.classic
    if ctx.api_version < SEVERAL_MEMBERS_FROM:
        (error,) = classic.leave(request.group_id, [MemberIdentity(request.member_id)])
        return ctx.services.groups.settled(request.group_id, LeaveGroupResponse(error_code=error))
    response = LeaveGroupResponse()
    leadership = ctx.services.groups.runtime.leadership(request.group_id)
    for members in slices(request.members):
        leavers = [MemberIdentity(member.member_id, member.group_instance_id) for member in members]
        outcomes = classic.leave(request.group_id, leavers)
        response.members += [
            MemberResponse(*leaver, error) for leaver, error in zip(leavers, outcomes, strict=True)
        ]
        yield
    return ctx.services.groups.settled(request.group_id, response, since=leadership)
