"""SaslHandshake v1: a client chooses its mechanism. v0, followed by bare tokens, is not offered."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    sasl = ctx.session.sasl
    if sasl is None:
        raise KafkaError(Error.ILLEGAL_SASL_STATE)
    response = SaslHandshakeResponse(mechanisms=list(sasl.authentication.mechanisms))
    try:
        sasl.begin(request.mechanism)
    except KafkaError as error:
        response.error_code = error.error
    return response
