"""ChangeMetadata v0: a broker passes on a change that a client asked it for, and the controller makes it."""

from __future__ import annotations

import json

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.change_metadata import ChangeMetadataRequest, ChangeMetadataResponse


async def handle(ctx: Context, request: ChangeMetadataRequest) -> ChangeMetadataResponse:
    try:
        arguments = json.loads(bytes(request.arguments))
        outcome, version = await ctx.services.member.change_here(request.name, arguments)
    except (ValueError, TypeError) as error:
        raise KafkaError(Error.INVALID_REQUEST, f"The change cannot be read: {error}") from error
    except KafkaError as error:
        return ChangeMetadataResponse(error_code=error.error, error_message=error.message)
    return ChangeMetadataResponse(
        controller_epoch=version.controller_epoch,
        number=version.number,
        outcome=json.dumps(outcome).encode(),
    )
