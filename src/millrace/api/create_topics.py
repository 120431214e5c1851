"""CreateTopics v2-7. v4: default partitions and replicas. v5: flexible, answers configs. v7: topic ids."""

from __future__ import annotations

from collections import Counter
from functools import partial

from millrace.api.context import Context
from millrace.cluster.configs import describe_topic
from millrace.cluster.image import TopicImage
from millrace.cluster.topic_rules import DEFAULT, check_total_partitions
from millrace.errors import Error, KafkaError
from millrace.steps import Turn, each, finish
from millrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    distinct = {topic.name: topic for topic in request.topics}
    try:
        check_total_partitions(
            sum(_partitions(ctx, topic) for topic in distinct.values() if times[topic.name] == 1)
        )
    except KafkaError as error:
        return CreateTopicsResponse(topics=await finish(each(distinct.values(), partial(_failed, error))))
    response = CreateTopicsResponse()
    turn = Turn()
    for topic in distinct.values():
        duplicate = times[topic.name] > 1
        response.topics.append(
            await _create(ctx, topic, validate_only=request.validate_only, duplicate=duplicate)
        )
        await turn.end_step()
    return response


def _partitions(ctx: Context, asked: CreatableTopic) -> int:
    if asked.assignments:
        return len(asked.assignments)
    return (
        ctx.services.config.num_partitions
        if asked.num_partitions == DEFAULT
        else max(asked.num_partitions, 0)
    )


def _failed(error: KafkaError, asked: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=error.error, error_message=error.message)


async def _create(
    ctx: Context, asked: CreatableTopic, *, validate_only: bool, duplicate: bool
) -> CreatableTopicResult:
    try:
        if duplicate:
            raise KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
        topic = await ctx.services.metadata.create_topic(
            asked.name,
            asked.num_partitions,
            asked.replication_factor,
            configs=_configs(asked),
            assignments=_assignments(asked),
            validate_only=validate_only,
        )
    except KafkaError as error:
        return _failed(error, asked)
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
            for entry in describe_topic(ctx.services.config, topic.configs)
        ],
    )
