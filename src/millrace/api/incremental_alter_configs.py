"""IncrementalAlterConfigs v0-1: sets, deletes, appends to or subtracts from single configs. v1: flexible."""

from __future__ import annotations

from millrace.api.config_changes import change_each
from millrace.api.context import Context
from millrace.cluster import resources
from millrace.cluster.configs import Change
from millrace.steps import each, finish
from millrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await resources.alter(
            ctx.services.metadata,
            ctx.services.config,
            resource.resource_type,
            resource.resource_name,
            await finish(each(resource.configs, _change)),
            validate_only=request.validate_only,
        )

    return IncrementalAlterConfigsResponse(responses=await change_each(request.resources, alter, _outcome))


def _change(config: AlterableConfig) -> Change:
    return Change(config.name, config.config_operation, config.value)


def _outcome(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
