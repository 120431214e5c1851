"""DescribeTopicPartitions v0: topics by name, page by page."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.cluster.image import NO_LEADER, ClusterImage, TopicImage
from millrace.cluster.topic_rules import check_topic_name
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps, each
from millrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> Steps[DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return _refused(request)
    image = ctx.image
    names = {topic.name for topic in request.topics} or {name for name in image.topics if _may_see(ctx, name)}
    room = max(1, min(request.response_partition_limit, ctx.services.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        yield
        if cursor is not None and name < cursor.topic_name:
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name)
            break
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        described = yield from _describe(ctx, image, name, first, room)
        response.topics.append(described)
        room -= len(described.partitions)
        after = first + len(described.partitions)
        if not described.error_code and after < image.topics[name].partitions:
            response.next_cursor = Cursor(topic_name=name, partition_index=after)
            break
    return response


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """An error for each topic: the response has no field for an error of the whole request."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=Error.INVALID_REQUEST)
            for topic in request.topics
        ]
    )


def _may_see(ctx: Context, name: str) -> bool:
    return ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, name))


def _describe(
    ctx: Context, image: ClusterImage, name: str, first: int, room: int
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    try:
        check_topic_name(name)
        topic = image.topic(name)
    except KafkaError as error:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=error.error)
    indexes = range(first, min(topic.partitions, first + room))
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=(yield from each(indexes, partial(_describe_partition, image, topic))),
        topic_authorized_operations=ctx.authorized_operations(Resource(ResourceType.TOPIC, name)),
    )


def _describe_partition(
    image: ClusterImage, topic: TopicImage, index: int
) -> DescribeTopicPartitionsResponsePartition:
    state = topic.states[index]
    return DescribeTopicPartitionsResponsePartition(
        error_code=Error.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else Error.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=[],
        offline_replicas=image.offline_replicas(state),
    )
