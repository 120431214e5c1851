"""JoinGroup v0-9. v1: rebalance timeout. v4: ids are assigned first (KIP-394). v5: static members.

v6: flexible. v7: protocol type in the response. v8: reason. v9: the leader may be told to assign nothing.
"""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Deferred, Eventual
from millrace.errors import KafkaError
from millrace.groups.classic_requests import JoinRequest, JoinResult
from millrace.groups.group import Client
from millrace.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9


def handle(ctx: Context, request: JoinGroupRequest) -> Eventual[JoinGroupResponse]:
    has_rebalance_timeout = ctx.api_version >= REBALANCE_TIMEOUT_FROM
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        # A protocol that is named twice counts once: each member has one vote.
        offers=tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items()),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        ),
        reason=request.reason,
        asks_for_id=ctx.api_version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=ctx.api_version >= SKIP_ASSIGNMENT_FROM,
    )
    # Java writes addresses without a name with a slash; tools and clients expect it.
    client = Client(ctx.client_id or "", f"/{ctx.session.client_host}")
    try:
        result = ctx.services.groups.classic.join(client, join)
    except KafkaError as error:
        return JoinGroupResponse(error_code=error.error, member_id=request.member_id)
    if isinstance(result, Deferred):
        return result.convert(_response)
    return ctx.services.groups.settled(request.group_id, _response(result))


def _response(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[JoinGroupResponseMember(*member) for member in result.members],
    )
