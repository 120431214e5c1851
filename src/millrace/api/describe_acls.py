"""DescribeAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from collections import defaultdict

from millrace.api.acl_requests import acl_filter, check_enabled
from millrace.api.context import Context
from millrace.steps import Steps
from millrace.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(ctx: Context, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    check_enabled(ctx, "No Authorizer is configured on the broker")
    wanted = acl_filter(request)
    by_resource: dict[tuple[int, str, int], list[AclDescription]] = defaultdict(list)
    for acl in ctx.image.acls:
        if wanted.matches(acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            by_resource[acl.resource, acl.name, acl.pattern].append(described)
        yield
    return DescribeAclsResponse(
        resources=[DescribeAclsResource(*resource, acls) for resource, acls in by_resource.items()]
    )
