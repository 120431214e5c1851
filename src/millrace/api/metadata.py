"""Metadata v0-13. v1: null means all topics. v4: auto-creation is a choice. v10: topic ids. v12: by id."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from millrace.api.context import Context
from millrace.cluster.image import NO_LEADER, ClusterImage, TopicImage
from millrace.cluster.topic_rules import MAX_PARTITIONS_PER_REQUEST, check_auto_creation, check_topic_name
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import CLUSTER, Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps, Turn, finish
from millrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millrace.wire.schema import ZERO_UUID

NO_FAILURES: Mapping[str, KafkaError] = MappingProxyType({})


def handle(
    ctx: Context, request: MetadataRequest
) -> Steps[MetadataResponse] | Coroutine[Any, Any, MetadataResponse]:
    missing = _missing_names(ctx, request)
    return _create_and_respond(ctx, request, missing) if missing else _respond(ctx, request)


def _missing_names(ctx: Context, request: MetadataRequest) -> list[str]:
    """The topics to create before the response; none if they are too many for one request."""
    if not request.allow_auto_topic_creation or not request.topics:
        return []
    known = ctx.image.topics
    named = dict.fromkeys(topic.name for topic in request.topics if topic.name)
    missing = [name for name in named if name not in known and _may_describe(ctx, name)]
    if len(missing) * ctx.services.config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        return []
    return missing


async def _create_and_respond(ctx: Context, request: MetadataRequest, names: list[str]) -> MetadataResponse:
    failures: dict[str, KafkaError] = {}
    turn = Turn()
    for name in names:
        try:
            check_auto_creation(ctx.services.config, name)
            _check_may_create(ctx, name)
            await ctx.services.metadata.create_topic(name)
        except KafkaError as error:
            failures[name] = error
        await turn.end_step()
    return await finish(_respond(ctx, request, failures))


def _may_describe(ctx: Context, name: str) -> bool:
    return ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, name))


def _check_may_create(ctx: Context, name: str) -> None:
    topic = Resource(ResourceType.TOPIC, name)
    if not ctx.allows(Operation.CREATE, CLUSTER) and not ctx.allows(Operation.CREATE, topic):
        raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)


def _respond(
    ctx: Context, request: MetadataRequest, failures: Mapping[str, KafkaError] = NO_FAILURES
) -> Steps[MetadataResponse]:
    image = ctx.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in image.brokers_on(ctx.session.listener.name)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.authorized_operations(CLUSTER)
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        for topic in image.topics.values():
            if _may_describe(ctx, topic.name):
                response.topics.append((yield from _describe(image, topic)))
            yield
    else:
        distinct = {(topic.name, topic.topic_id): topic for topic in request.topics}
        for wanted in distinct.values():
            response.topics.append((yield from _find(ctx, image, wanted, failures)))
            yield
    if request.include_topic_authorized_operations:
        for described in response.topics:
            if not described.error_code:
                resource = Resource(ResourceType.TOPIC, described.name or "")
                described.topic_authorized_operations = ctx.authorized_operations(resource)
    return response


def _find(
    ctx: Context, image: ClusterImage, asked: MetadataRequestTopic, failures: Mapping[str, KafkaError]
) -> Steps[MetadataResponseTopic]:
    # Some clients that ask by id leave the name empty instead of null.
    name = None if asked.topic_id != ZERO_UUID else asked.name
    try:
        if name is None:
            found = image.topic_by_id(asked.topic_id)
            if not _may_describe(ctx, found.name):
                raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
            return (yield from _describe(image, found))
        if not _may_describe(ctx, name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
        if name in image.topics:
            return (yield from _describe(image, image.topics[name]))
        if name in failures:
            raise failures[name]
        check_topic_name(name)
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.error,
            # Before v12 a name cannot be null.
            name=name if name is not None or ctx.api_version >= 12 else "",
            topic_id=asked.topic_id,
        )


def _describe(image: ClusterImage, topic: TopicImage) -> Steps[MetadataResponseTopic]:
    described = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal)
    for index, state in enumerate(topic.states):
        described.partitions.append(
            MetadataResponsePartition(
                error_code=Error.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else Error.NONE,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=image.offline_replicas(state),
            )
        )
        yield
    return described
