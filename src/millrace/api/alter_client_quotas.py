"""AlterClientQuotas v0-1 (KIP-546). v1: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.entities import entity_path
from millrace.security.quotas import check_quota
from millrace.steps import Turn
from millrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

# Each entity's change is a write to disk.
MAX_ENTITIES = 1000
ANY_QUOTA = "producer_byte_rate"


async def handle(ctx: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    turn = Turn()
    for entry in request.entries:
        result = EntryResult(entity=entry.entity)
        try:
            if len(request.entries) > MAX_ENTITIES:
                raise KafkaError(Error.INVALID_REQUEST, f"More than {MAX_ENTITIES} entities in one request")
            path, settings = _changes(entry)
            if not request.validate_only:
                await ctx.services.metadata.alter_entity_configs(path, settings)
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        response.entries.append(result)
        await turn.end_step()
    return response


def _changes(entry: EntryData) -> tuple[str, dict[str, str | None]]:
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    if len(parts) < len(entry.entity):
        raise KafkaError(Error.INVALID_REQUEST, "Duplicate entity type")
    settings: dict[str, str | None] = {}
    for change in entry.ops:
        if change.key in settings:
            raise KafkaError(Error.INVALID_REQUEST, f"Duplicate key {change.key}")
        check_quota(parts, change.key, 1.0 if change.remove else change.value)
        settings[change.key] = None if change.remove else repr(change.value)
    if not settings:
        check_quota(parts, "connection_creation_rate" if "ip" in parts else ANY_QUOTA, 1.0)
    return entity_path(parts), settings
