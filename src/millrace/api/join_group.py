"""JoinGroup v0-9. v1: rebalance timeout. v4: ids are handed out first (KIP-394). v5: static members.

v6 is flexible, v7 answers with the protocol type, v8 takes a reason, v9 can make the leader assign nothing.
"""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Deferred
from millrace.errors import KafkaError
from millrace.groups.classic_member import Client
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_FROM = 1


def handle(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    if ctx.api_version < REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    # Hosts are written as Java writes addresses without a name; tools and clients expect the slash.
    client = Client(ctx.client_id or "", f"/{ctx.client_host}", ctx.api_version)
    try:
        return ctx.groups.classic.join(client, request)
    except KafkaError as error:
        return JoinGroupResponse(error_code=error.error, member_id=request.member_id)
