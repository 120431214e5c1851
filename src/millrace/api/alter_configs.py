"""AlterConfigs v0-2: replaces all configs of a resource. v2: flexible."""

from __future__ import annotations

from operator import attrgetter

from millrace.api.config_changes import change_each
from millrace.api.context import Context
from millrace.cluster import resources
from millrace.steps import each, finish
from millrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsResource) -> None:
        await resources.replace(
            ctx.services.metadata,
            ctx.services.config,
            resource.resource_type,
            resource.resource_name,
            await finish(each(resource.configs, attrgetter("name", "value"))),
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(responses=await change_each(request.resources, replace, _outcome))


def _outcome(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
