"""SyncGroup v0-5. v1: throttle time. v3: static members. v4: flexible. v5: protocol type and name."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM = 5


def handle(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    if ctx.api_version >= PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
    return ctx.groups.classic.sync(request)
