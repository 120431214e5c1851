"""ChangeMetadata v0, flexible: a broker passes a change on to the controller. An API of millrace's own."""

from millrace.wire.schema import Request, Response, int16, int32, int64, octets, string


class ChangeMetadataRequest(Request, key=10001, versions="0", flexible="0+"):
    name: str = string()
    arguments: bytes = octets()


class ChangeMetadataResponse(Response, to=ChangeMetadataRequest):
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    controller_epoch: int = int32(default=-1)
    number: int = int64(default=-1)
    outcome: bytes = octets()
