"""DeleteGroups v0-2. v2: flexible."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(ctx: Context, request: DeleteGroupsRequest) -> Steps[DeleteGroupsResponse]:
    # A group that is named twice is deleted once.
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=(yield from each(names, partial(_delete, ctx))))


def _delete(ctx: Context, group_id: str) -> DeletableGroupResult:
    error = Error.NONE
    try:
        ctx.groups.delete(group_id)
    except KafkaError as failure:
        error = failure.error
    return DeletableGroupResult(group_id=group_id, error_code=error)
