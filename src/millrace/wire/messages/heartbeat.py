"""Heartbeat v0-4. v1: throttle time. v3: static members. v4: flexible."""

from millrace.wire.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None)


class HeartbeatResponse(Response, to=HeartbeatRequest):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
