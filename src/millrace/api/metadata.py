"""Metadata v0-13. v1: null means all topics. v4: auto-creation is a choice. v10: topic ids. v12: by id."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

from millrace.api.context import Context
from millrace.cluster.metadata import Topic, check_topic_name
from millrace.errors import Error, KafkaError
from millrace.security import operations
from millrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millrace.wire.schema import ZERO_UUID


def handle(
    ctx: Context, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    missing = _missing_names(ctx, request)
    return _create_and_answer(ctx, request, missing) if len(missing) > 1 else _answer(ctx, request)


def _missing_names(ctx: Context, request: MetadataRequest) -> list[str]:
    """The topics that have to be created before the answer."""
    if not request.allow_auto_topic_creation or not request.topics:
        return []
    known = ctx.cluster.topics
    return [topic.name for topic in request.topics if topic.name and topic.name not in known]


async def _create_and_answer(ctx: Context, request: MetadataRequest, names: list[str]) -> MetadataResponse:
    for name in names:
        # What cannot be created is told in the answer.
        with suppress(KafkaError):
            ctx.cluster.auto_create_topic(name)
        # Each topic costs an fsync: others get their turn in between.
        await asyncio.sleep(0)
    return _answer(ctx, request)


def _answer(ctx: Context, request: MetadataRequest) -> MetadataResponse:
    cluster = ctx.cluster
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=cluster.node_id,
                host=ctx.listener.advertised_host,
                port=ctx.listener.advertised_port,
                rack=ctx.config.broker_rack,
            )
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.node_id,
        topics=list(_topics(ctx, request)),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.ALL_ON_CLUSTER
    return response


def _topics(ctx: Context, request: MetadataRequest) -> Iterator[MetadataResponseTopic]:
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        answers: Iterable[MetadataResponseTopic] = (
            _describe(ctx, topic) for topic in ctx.cluster.topics.values()
        )
    else:
        asked = {(topic.name, topic.topic_id): topic for topic in request.topics}
        answers = (_find(ctx, topic, request.allow_auto_topic_creation) for topic in asked.values())
    for answer in answers:
        if request.include_topic_authorized_operations and not answer.error_code:
            answer.topic_authorized_operations = operations.ALL_ON_TOPIC
        yield answer


def _find(ctx: Context, asked: MetadataRequestTopic, allow_auto_creation: bool) -> MetadataResponseTopic:
    # Some clients that ask by id leave the name empty instead of null.
    name = None if asked.topic_id != ZERO_UUID else asked.name
    try:
        if name is None:
            return _describe(ctx, ctx.cluster.topic_by_id(asked.topic_id))
        topic = ctx.cluster.topics.get(name)
        if topic is None:
            topic = _missing(ctx, name, allow_auto_creation)
        return _describe(ctx, topic)
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.error,
            # Before v12 a name cannot be null.
            name=name if name is not None or ctx.api_version >= 12 else "",
            topic_id=asked.topic_id,
        )


def _missing(ctx: Context, name: str, allow_auto_creation: bool) -> Topic:
    """The topic, created for the client; its leader is this broker, so it can be used at once."""
    if allow_auto_creation:
        return ctx.cluster.auto_create_topic(name)
    check_topic_name(name)
    raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)


def _describe(ctx: Context, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_describe_partition(ctx, topic.name, index) for index in range(topic.partitions)],
    )


def _describe_partition(ctx: Context, topic: str, index: int) -> MetadataResponsePartition:
    node_id = ctx.cluster.node_id
    try:
        partition = ctx.partitions.get(topic, index)
    except KafkaError:
        return MetadataResponsePartition(
            error_code=Error.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=-1,
            replica_nodes=[node_id],
            offline_replicas=[node_id],
        )
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
    )
