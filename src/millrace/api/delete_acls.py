"""DeleteAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error
from millrace.steps import Steps, each
from millrace.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(ctx: Context, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
    return DeleteAclsResponse(filter_results=(yield from each(request.filters, _refuse)))


def _refuse(_: DeleteAclsFilter) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(Error.SECURITY_DISABLED, "No Authorizer is configured.")
