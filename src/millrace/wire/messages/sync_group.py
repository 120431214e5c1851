"""SyncGroup v0-5. v1: throttle time. v3: static members. v4: flexible. v5: protocol type and name."""

from millrace.wire.schema import Request, Response, Struct, array, int16, int32, octets, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    protocol_type: str | None = string("5+", nullable=True, default=None)
    protocol_name: str | None = string("5+", nullable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, to=SyncGroupRequest):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable=True, default=None)
    protocol_name: str | None = string("5+", nullable=True, default=None)
    assignment: bytes = octets()
