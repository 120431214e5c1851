"""AlterConfigs v0-2: replaces all configs of a resource. v2: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster import resources
from millrace.errors import KafkaError
from millrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[_alter(ctx, resource, request.validate_only) for resource in request.resources]
    )


def _alter(ctx: Context, resource: AlterConfigsResource, validate_only: bool) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        resources.replace(
            ctx.cluster,
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
            validate_only=validate_only,
        )
    except KafkaError as error:
        response.error_code = error.error
        response.error_message = error.message
    return response
