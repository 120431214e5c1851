"""CreateTopics v2-7. v4: default partitions and replicas. v5: flexible, answers configs. v7: topic ids."""

from __future__ import annotations

from collections import Counter

from millrace.api.context import Context
from millrace.cluster.configs import describe_topic
from millrace.cluster.image import TopicImage
from millrace.errors import Error, KafkaError
from millrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    for asked in request.topics:
        if asked.name in results:
            continue
        results[asked.name] = await _create(
            ctx, asked, validate_only=request.validate_only, duplicate=times[asked.name] > 1
        )
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(
    ctx: Context, asked: CreatableTopic, *, validate_only: bool, duplicate: bool
) -> CreatableTopicResult:
    try:
        if duplicate:
            raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
        topic = await ctx.metadata.create_topic(
            asked.name,
            asked.num_partitions,
            asked.replication_factor,
            configs=_configs(asked),
            assignments=_assignments(asked),
            validate_only=validate_only,
        )
    except KafkaError as error:
        return CreatableTopicResult(name=asked.name, error_code=error.error, error_message=error.message)
    return _created(ctx, topic)


def _configs(asked: CreatableTopic) -> dict[str, str]:
    configs = {}
    for config in asked.configs:
        if config.value is None:
            raise KafkaError(
                Error.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}"
            )
        configs[config.name] = config.value
    return configs


def _assignments(asked: CreatableTopic) -> dict[int, list[int]]:
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in asked.assignments}
    if len(assignments) < len(asked.assignments):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment names a partition twice."
        )
    return assignments


def _created(ctx: Context, topic: TopicImage) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, config_source=entry.source, is_sensitive=entry.sensitive
            )
            for entry in describe_topic(ctx.config, topic.configs)
        ],
    )
