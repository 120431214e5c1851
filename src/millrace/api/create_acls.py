"""CreateAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from millrace.api.acl_requests import check_enabled
from millrace.api.context import Context
from millrace.errors import KafkaError
from millrace.security.acls import Acl, checked_acl
from millrace.steps import Turn
from millrace.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    response = CreateAclsResponse()
    created: list[Acl] = []
    turn = Turn()
    for asked in request.creations:
        result = AclCreationResult()
        try:
            check_enabled(ctx)
            created.append(
                checked_acl(
                    asked.resource_type,
                    asked.resource_name,
                    asked.resource_pattern_type,
                    asked.principal,
                    asked.host,
                    asked.operation,
                    asked.permission_type,
                )
            )
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        response.results.append(result)
        await turn.end_step()
    if created:
        await ctx.services.metadata.alter_acls(added=created)
    return response
