"""ListGroups v0-5. v1: throttle time. v3: flexible. v4: by state. v5: by type."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error
from millrace.groups.group import Group
from millrace.security.authorizer import CLUSTER, Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps
from millrace.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(ctx: Context, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    # Case does not matter in filters: clients differ in how they write them.
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse()
    if ctx.services.groups.runtime.is_loading:
        response.error_code = Error.COORDINATOR_LOAD_IN_PROGRESS
    sees_all = ctx.allows(Operation.DESCRIBE, CLUSTER)
    for group in list(ctx.services.groups):
        resource = Resource(ResourceType.GROUP, group.group_id)
        if not sees_all and not ctx.allows(Operation.DESCRIBE, resource):
            continue
        if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds):
            response.groups.append(_listed(group))
        yield
    return response


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.kind,
    )
