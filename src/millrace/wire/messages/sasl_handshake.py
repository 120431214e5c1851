"""SaslHandshake v0-1. v1: what follows is SaslAuthenticate requests, not bare tokens."""

from millrace.wire.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, to=SaslHandshakeRequest):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
