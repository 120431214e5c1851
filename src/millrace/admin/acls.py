"""ACLs of a cluster: create, describe and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.client import Client, Connection, Outcomes
from millrace.errors import check
from millrace.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from millrace.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millrace.wire.messages.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def describe_acls(client: Client, wanted: DescribeAclsRequest) -> list[DescribeAclsResource]:
    """The ACLs that a filter selects, by resource."""
    response = await client.send(wanted, DescribeAclsResponse)
    check(response.error_code, response.error_message)
    return response.resources


async def create_acls(client: Client, creations: Sequence[AclCreation]) -> None:
    """Create ACLs; raises the first error."""

    async def call(connection: Connection, _: list[None]) -> Outcomes[None, CreateAclsResponse]:
        return Outcomes({None: await connection.send(CreateAclsRequest(list(creations)), CreateAclsResponse)})

    for result in (await client.call_controller([None], call))[None].results:
        check(result.error_code, result.error_message)


async def delete_acls(client: Client, filters: Sequence[DeleteAclsFilter]) -> list[DeleteAclsMatchingAcl]:
    """Delete the ACLs that any filter selects, and return them; raises the first error."""

    async def call(connection: Connection, _: list[None]) -> Outcomes[None, DeleteAclsResponse]:
        return Outcomes({None: await connection.send(DeleteAclsRequest(list(filters)), DeleteAclsResponse)})

    deleted: list[DeleteAclsMatchingAcl] = []
    for result in (await client.call_controller([None], call))[None].filter_results:
        check(result.error_code, result.error_message)
        deleted += result.matching_acls
    return deleted
