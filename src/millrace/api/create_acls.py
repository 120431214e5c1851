"""CreateAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error
from millrace.steps import Steps, each
from millrace.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(ctx: Context, request: CreateAclsRequest) -> Steps[CreateAclsResponse]:
    return CreateAclsResponse(results=(yield from each(request.creations, _refuse)))


def _refuse(_: AclCreation) -> AclCreationResult:
    return AclCreationResult(Error.SECURITY_DISABLED, "No Authorizer is configured.")
