"""DescribeConfigs v1-4. v3: types and documentation. v4: flexible."""

from __future__ import annotations

import asyncio

from millrace.api.context import Context
from millrace.cluster import resources
from millrace.cluster.configs import ConfigEntry
from millrace.errors import KafkaError
from millrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_UNKNOWN_TYPE = 0


async def handle(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    # Asked twice, described once: an answer is many times as large as its question.
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    response = DescribeConfigsResponse()
    for resource in asked.values():
        response.results.append(_describe(ctx, resource, request))
        # Each takes about a millisecond: others get their turn in between.
        await asyncio.sleep(0)
    return response


def _describe(
    ctx: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = resources.describe(ctx.image, ctx.config, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code = error.error
        result.error_message = error.message
        return result
    keys = resource.configuration_keys
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
