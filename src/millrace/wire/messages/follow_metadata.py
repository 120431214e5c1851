"""FollowMetadata v0, flexible: a broker asks the controller for the next image. An API of millrace's own."""

from millrace.wire.schema import Request, Response, boolean, int16, int32, int64, octets


class FollowMetadataRequest(Request, key=10000, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    controller_epoch: int = int32(default=-1)
    number: int = int64(default=-1)
    max_wait_ms: int = int32()


class FollowMetadataResponse(Response, to=FollowMetadataRequest):
    error_code: int = int16()
    controller_epoch: int = int32(default=-1)
    number: int = int64(default=-1)
    is_whole: bool = boolean()
    change: bytes = octets()
