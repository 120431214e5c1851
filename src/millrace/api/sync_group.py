"""SyncGroup v0-5. v1: throttle time. v3: static members. v4: flexible. v5: protocol type and name."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Deferred, Eventual
from millrace.errors import Error, KafkaError
from millrace.groups.classic_requests import SyncRequest, SyncResult
from millrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM = 5


def handle(ctx: Context, request: SyncGroupRequest) -> Eventual[SyncGroupResponse]:
    if ctx.api_version >= PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={assigned.member_id: assigned.assignment for assigned in request.assignments},
    )
    result = ctx.services.groups.classic.sync(sync)
    if isinstance(result, Deferred):
        return result.convert(_response)
    return ctx.services.groups.settled(request.group_id, _response(result))


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
