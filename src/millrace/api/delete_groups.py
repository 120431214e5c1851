"""DeleteGroups v0-2. v2: flexible."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.deferred import Eventual, gather
from millrace.errors import KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(ctx: Context, request: DeleteGroupsRequest) -> Steps[Eventual[DeleteGroupsResponse]]:
    # A group that is named twice is deleted once.
    names = dict.fromkeys(request.groups_names)
    results = yield from each(names, partial(_delete, ctx))
    return gather(results, lambda deleted: DeleteGroupsResponse(results=deleted))


def _delete(ctx: Context, group_id: str) -> Eventual[DeletableGroupResult]:
    try:
        ctx.services.groups.delete(group_id)
    except KafkaError as error:
        return _failed(group_id, error)
    return ctx.services.groups.settled(group_id, DeletableGroupResult(group_id), partial(_failed, group_id))


def _failed(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id, error.error)
