"""DescribeTopicPartitions v0: topics by name, page by page."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster.metadata import Topic, check_topic_name
from millrace.errors import Error, KafkaError
from millrace.security import operations
from millrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return _refused(request)
    names = {topic.name for topic in request.topics} or set(ctx.cluster.topics)
    room = max(1, min(request.response_partition_limit, ctx.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name)
            break
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        answer = _describe(ctx, name, first, room)
        response.topics.append(answer)
        room -= len(answer.partitions)
        after = first + len(answer.partitions)
        if not answer.error_code and after < ctx.cluster.topics[name].partitions:
            response.next_cursor = Cursor(topic_name=name, partition_index=after)
            break
    return response


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """This response has no place for an error of the request as a whole: each topic gets it."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=Error.INVALID_REQUEST)
            for topic in request.topics
        ]
    )


def _describe(ctx: Context, name: str, first: int, room: int) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        topic = ctx.cluster.topic(name)
    except KafkaError as error:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=error.error)
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _describe_partition(ctx, topic, index)
            for index in range(first, min(topic.partitions, first + room))
        ],
        topic_authorized_operations=operations.ALL_ON_TOPIC,
    )


def _describe_partition(ctx: Context, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    node_id = ctx.cluster.node_id
    answer = DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=node_id,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
    try:
        answer.leader_epoch = ctx.partitions.get(topic.name, index).leader_epoch
    except KafkaError:
        answer.error_code = Error.LEADER_NOT_AVAILABLE
        answer.leader_id = -1
        answer.isr_nodes = []
        answer.offline_replicas = [node_id]
    return answer
