"""ConsumerGroupHeartbeat v0-1 (KIP-848). v1: members make their own ids, and may subscribe by regex."""

from __future__ import annotations

from collections.abc import Collection

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.consumer_member import by_topic
from millrace.groups.consumer_request import Heartbeat
from millrace.groups.group import Client
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

OWN_IDS_FROM = 1


def handle(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> Eventual[ConsumerGroupHeartbeatResponse]:
    for topic in request.subscribed_topic_names or ():
        if not ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        makes_own_id=ctx.api_version >= OWN_IDS_FROM,
    )
    # Java writes addresses without a name with a slash; tools and clients expect it.
    client = Client(ctx.client_id or "", f"/{ctx.session.client_host}")
    result = ctx.services.groups.consumer.heartbeat(client, heartbeat)
    response = ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )
    return ctx.services.groups.settled(request.group_id, response)


def _owned(topics: list[TopicPartitions] | None) -> set[Partition] | None:
    if topics is None:
        return None
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}


def _assignment(partitions: Collection[Partition]) -> Assignment:
    return Assignment([TopicPartitions(topic, indexes) for topic, indexes in by_topic(partitions).items()])
