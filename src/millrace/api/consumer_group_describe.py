"""ConsumerGroupDescribe v0-1 (KIP-848). v1: which protocol each member speaks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from millrace.api.context import Context
from millrace.api.described_groups import describe_each
from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_member import ConsumerMember, by_topic
from millrace.security.authorizer import Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps
from millrace.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(ctx: Context, request: ConsumerGroupDescribeRequest) -> Steps[ConsumerGroupDescribeResponse]:
    groups = yield from describe_each(
        ctx, request.group_ids, partial(_describe, ctx), with_operations=request.include_authorized_operations
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        group = ctx.services.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        _check_may_see_topics(ctx, group)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.error, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ctx.services.groups.consumer.assignor_name(group),
        members=[_member(ctx, group, member) for member in group.members.values()],
    )


def _check_may_see_topics(ctx: Context, group: ConsumerGroup) -> None:
    for topic in group.subscribed_topics():
        if not ctx.allows(Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
            raise KafkaError(
                Error.TOPIC_AUTHORIZATION_FAILED,
                "The client may not describe all topics of the group.",
            )


def _member(ctx: Context, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        # Partitions that it is giving up are still its own.
        assignment=_assignment(ctx, (*member.assigned, *member.revoking)),
        target_assignment=_assignment(ctx, group.target_of(member.member_id)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(ctx: Context, partitions: Iterable[Partition]) -> Assignment:
    topics = ctx.image.by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in topics
        ]
    )
