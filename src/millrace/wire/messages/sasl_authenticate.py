"""SaslAuthenticate v0-2. v1: the session's lifetime (KIP-368). v2: flexible."""

from millrace.wire.schema import Request, Response, int16, int64, octets, string


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Response, to=SaslAuthenticateRequest):
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")
