"""DescribeAcls v1-3: refused while no authorizer is configured. v2: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    raise KafkaError(Error.SECURITY_DISABLED, "No Authorizer is configured on the broker")
