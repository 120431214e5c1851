"""DescribeGroups v0-6, of classic groups. v3: authorized operations. v4: static members. v5: flexible.

v6: a missing group is an error; before, it is described as dead.
"""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.api.described_groups import describe_each
from millrace.errors import Error, KafkaError
from millrace.groups.classic import ClassicGroup, State
from millrace.steps import Steps
from millrace.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_FROM = 6


def handle(ctx: Context, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    groups = yield from describe_each(
        ctx,
        request.groups,
        partial(_find_and_describe, ctx),
        with_operations=request.include_authorized_operations,
    )
    return DescribeGroupsResponse(groups=groups)


def _find_and_describe(ctx: Context, group_id: str) -> DescribedGroup:
    try:
        group = ctx.services.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return describe(group)
        if group.kind == "classic":
            return DescribedGroup(group_id=group_id, group_state=group.state)
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
    except KafkaError as error:
        return _missing(ctx, group_id, error)


def describe(group: ClassicGroup) -> DescribedGroup:
    """A classic group as tools see it; members have metadata once they have settled on a protocol."""
    protocol = group.settled_protocol
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) or b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def _missing(ctx: Context, group_id: str, error: KafkaError) -> DescribedGroup:
    if error.error is not Error.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=error.error)
    if ctx.api_version < NOT_FOUND_FROM:
        return DescribedGroup(group_id=group_id, group_state=State.DEAD)
    return DescribedGroup(
        group_id=group_id, group_state=State.DEAD, error_code=error.error, error_message=error.message
    )
