"""CreatePartitions v0-3. v2: flexible."""

from __future__ import annotations

from collections import Counter

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = {
        asked.name: await _add(
            ctx, asked, validate_only=request.validate_only, duplicate=times[asked.name] > 1
        )
        for asked in request.topics
    }
    return CreatePartitionsResponse(results=list(results.values()))


async def _add(
    ctx: Context, asked: CreatePartitionsTopic, *, validate_only: bool, duplicate: bool
) -> CreatePartitionsTopicResult:
    try:
        if duplicate:
            raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
        assignments = None
        if asked.assignments is not None:
            assignments = [assignment.broker_ids for assignment in asked.assignments]
        await ctx.metadata.add_partitions(asked.name, asked.count, assignments, validate_only=validate_only)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=asked.name, error_code=error.error, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=asked.name)
