"""IncrementalAlterConfigs v0-1: sets, deletes, appends to or subtracts from single configs. v1: flexible."""

from __future__ import annotations

from collections import Counter

from millrace.api.context import Context
from millrace.cluster import resources
from millrace.cluster.configs import Change
from millrace.errors import Error, KafkaError
from millrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    named = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    times = Counter(named)
    responses = {
        key: _alter(ctx, resource, validate_only=request.validate_only, duplicate=times[key] > 1)
        for key, resource in zip(named, request.resources, strict=True)
    }
    return IncrementalAlterConfigsResponse(responses=list(responses.values()))


def _alter(
    ctx: Context, resource: AlterConfigsResource, *, validate_only: bool, duplicate: bool
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        if duplicate:
            raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
        resources.alter(
            ctx.cluster,
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.config_operation, config.value) for config in resource.configs],
            validate_only=validate_only,
        )
    except KafkaError as error:
        response.error_code = error.error
        response.error_message = error.message
    return response
