"""DeleteAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from millrace.api.acl_requests import acl_filter, check_enabled
from millrace.api.context import Context
from millrace.errors import KafkaError
from millrace.security.acls import Acl
from millrace.steps import Turn
from millrace.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    response = DeleteAclsResponse()
    removed: set[Acl] = set()
    turn = Turn()
    for asked in request.filters:
        result = DeleteAclsFilterResult()
        try:
            check_enabled(ctx)
            wanted = acl_filter(asked)
            matching = [acl for acl in ctx.image.acls if wanted.matches(acl)]
            removed.update(matching)
            result.matching_acls = [_matching(acl) for acl in matching]
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        response.filter_results.append(result)
        await turn.end_step()
    if removed:
        await ctx.services.metadata.alter_acls(removed=removed)
    return response


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
