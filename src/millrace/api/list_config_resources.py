"""ListConfigResources v0-1. v0: client metrics only. v1: any type of resource."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster import resources
from millrace.cluster.resources import ResourceType
from millrace.errors import Error, KafkaError
from millrace.steps import Steps
from millrace.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def handle(ctx: Context, request: ListConfigResourcesRequest) -> Steps[ListConfigResourcesResponse]:
    response = ListConfigResourcesResponse()
    for resource_type in _types(ctx, request):
        for name in resources.names(ctx.image, resource_type):
            response.config_resources.append(ConfigResource(name, resource_type))
            yield
    return response


def _types(ctx: Context, request: ListConfigResourcesRequest) -> list[ResourceType]:
    if ctx.api_version == 0:
        return [ResourceType.CLIENT_METRICS]
    try:
        return [ResourceType(number) for number in dict.fromkeys(request.resource_types)] or list(
            ResourceType
        )
    except ValueError as error:
        raise KafkaError(Error.UNSUPPORTED_VERSION) from error
