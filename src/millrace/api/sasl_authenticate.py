"""SaslAuthenticate v0-2: one message of an exchange. v1: the session's lifetime (KIP-368). v2: flexible.

A failure is answered late, so that guessing passwords is slow, and ends the connection.
"""

from __future__ import annotations

import asyncio

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import Principal
from millrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

# The response to a failure is on its way before its connection is closed.
CLOSE_AFTER_SECONDS = 0.1


async def handle(ctx: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    session, sasl = ctx.session, ctx.session.sasl
    if sasl is None:
        raise KafkaError(Error.ILLEGAL_SASL_STATE)
    try:
        progress = await sasl.step(bytes(request.auth_bytes))
    except KafkaError as error:
        await asyncio.sleep(ctx.services.config.connection_failed_authentication_delay_ms / 1000)
        ctx.services.loop.call_later(CLOSE_AFTER_SECONDS, sasl.disconnect, "authentication failed")
        return SaslAuthenticateResponse(error_code=error.error, error_message=error.message)
    response = SaslAuthenticateResponse(auth_bytes=progress.reply)
    if progress.identity is not None:
        session.principal = Principal("User", progress.identity.name)
        response.session_lifetime_ms = sasl.lifetime_ms()
        sasl.admit(response.session_lifetime_ms)
    return response
