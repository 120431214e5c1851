"""ConsumerGroupHeartbeat v0-1 (KIP-848). v1: members make their own ids, and may subscribe by regex."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.groups.classic_member import Client
from millrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    # Hosts are written as Java writes addresses without a name; tools and clients expect the slash.
    client = Client(ctx.client_id or "", f"/{ctx.client_host}", ctx.api_version)
    return ctx.groups.consumer.heartbeat(client, request)
