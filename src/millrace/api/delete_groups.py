"""DeleteGroups v0-2. v2: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_delete(ctx, group_id) for group_id in request.groups_names])


def _delete(ctx: Context, group_id: str) -> DeletableGroupResult:
    error = Error.NONE
    try:
        ctx.groups.delete(group_id)
    except KafkaError as failure:
        error = failure.error
    return DeletableGroupResult(group_id=group_id, error_code=error)
