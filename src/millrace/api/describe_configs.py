"""DescribeConfigs v1-4. v3: types and documentation. v4: flexible."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.cluster import resources
from millrace.cluster.configs import ConfigEntry
from millrace.errors import KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_UNKNOWN_TYPE = 0


def handle(ctx: Context, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    # Described once if requested twice: a description is many times as long as its request.
    distinct: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResource] = {}
    for resource in request.resources:
        keys = tuple(dict.fromkeys(resource.configuration_keys or ()))
        distinct[resource.resource_type, resource.resource_name, keys] = resource
        yield
    describe = partial(_describe, ctx, request)
    return DescribeConfigsResponse(results=(yield from each(distinct.values(), describe)))


def _describe(
    ctx: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = resources.describe(
            ctx.image, ctx.services.config, resource.resource_type, resource.resource_name
        )
    except KafkaError as error:
        result.error_code = error.error
        result.error_message = error.message
        return result
    keys = set(resource.configuration_keys or ())
    result.configs = [_result(entry, request) for entry in entries if not keys or entry.name in keys]
    return result


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=_UNKNOWN_TYPE if entry.kind is None else entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return result
