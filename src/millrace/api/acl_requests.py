"""The part that the APIs of ACLs share."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.acls import AclFilter
from millrace.wire.messages.delete_acls import DeleteAclsFilter
from millrace.wire.messages.describe_acls import DescribeAclsRequest


def check_enabled(ctx: Context, message: str = "No Authorizer is configured.") -> None:
    """Raises KafkaError if nothing looks at ACLs."""
    if ctx.services.authorizer is None:
        raise KafkaError(Error.SECURITY_DISABLED, message)


def acl_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter of a request. Raises KafkaError."""
    made = AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    made.check()
    return made
