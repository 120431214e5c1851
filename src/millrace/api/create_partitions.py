"""CreatePartitions v0-3. v2: flexible."""

from __future__ import annotations

from collections import Counter

from millrace.api.context import Context
from millrace.cluster.topic_rules import check_total_partitions
from millrace.errors import Error, KafkaError
from millrace.steps import Turn
from millrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    total = 0
    turn = Turn()
    for topic in request.topics:
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
            added = topic.count - (ctx.image.partition_count(topic.name) or topic.count)
            check_total_partitions(total + added)
            await ctx.services.metadata.add_partitions(
                topic.name, topic.count, _assignments(topic), validate_only=request.validate_only
            )
            total += added
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        await turn.end_step()
    return CreatePartitionsResponse(results=list(results.values()))


def _assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
