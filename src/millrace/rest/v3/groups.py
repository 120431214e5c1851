"""Consumer groups, their consumers and assignments, and their lag."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace.admin.group_offsets import PartitionLag, group_lags
from millrace.admin.groups import GroupDescription, MemberDescription, describe_groups, list_groups
from millrace.client import TopicPartition
from millrace.errors import Error
from millrace.rest.errors import error
from millrace.rest.v3.resources import Json, Links, links_of
from millrace.rest.web import partition_of, proxy
from millrace.services.encoded_path import Route
from millrace.services.errors import Json as Answer


def _group_body(group: GroupDescription, links: Links) -> Json:
    path = ("consumer-groups", group.group_id)
    return links.resource(
        "KafkaConsumerGroup",
        path,
        {
            "consumer_group_id": group.group_id,
            "is_simple": not group.protocol_type,
            "partition_assignor": group.assignor,
            "state": group.state.upper().replace(" ", "_"),
            "coordinator": links.related("brokers", group.coordinator.id),
            "consumers": links.related(*path, "consumers"),
            "lag_summary": links.related(*path, "lag-summary"),
        },
    )


def _member_body(group: GroupDescription, member: MemberDescription, links: Links) -> Json:
    path = ("consumer-groups", group.group_id, "consumers", member.member_id)
    return links.resource(
        "KafkaConsumer",
        path,
        {
            "consumer_group_id": group.group_id,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "assignments": links.related(*path, "assignments"),
        },
    )


async def _group_of(request: Request) -> GroupDescription:
    group_id = request.path_params["group"]
    found = await describe_groups(proxy(request).client, [group_id])
    failure = found.failed.get(group_id)
    if failure is not None and failure.error is Error.GROUP_ID_NOT_FOUND:
        raise error(404, f"Consumer group {group_id[:100]} cannot be found.")
    return found[group_id]


async def list_all(request: Request) -> Response:
    links, client = await links_of(request), proxy(request).client
    ids = [group.group_id for group in await list_groups(client) if group.is_consumer_group]
    groups = (await describe_groups(client, ids)).succeeded.values()
    data = [_group_body(group, links) for group in groups]
    return Answer(links.collection("KafkaConsumerGroupList", ("consumer-groups",), data))


async def get(request: Request) -> Response:
    links = await links_of(request)
    return Answer(_group_body(await _group_of(request), links))


async def list_members(request: Request) -> Response:
    links, group = await links_of(request), await _group_of(request)
    data = [_member_body(group, member, links) for member in group.members]
    path = ("consumer-groups", group.group_id, "consumers")
    return Answer(links.collection("KafkaConsumerList", path, data))


async def _member_of(request: Request) -> tuple[GroupDescription, MemberDescription]:
    group = await _group_of(request)
    for member in group.members:
        if member.member_id == request.path_params["consumer"]:
            return group, member
    raise error(404, f"Consumer {request.path_params['consumer'][:100]} cannot be found.")


async def get_member(request: Request) -> Response:
    links = await links_of(request)
    return Answer(_member_body(*await _member_of(request), links))


async def list_assignments(request: Request) -> Response:
    links = await links_of(request)
    group, member = await _member_of(request)
    path = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    data = [
        links.resource(
            "KafkaConsumerAssignment",
            (*path, topic, "partitions", partition),
            {
                "consumer_group_id": group.group_id,
                "consumer_id": member.member_id,
                "topic_name": topic,
                "partition_id": partition,
                "partition": links.related("topics", topic, "partitions", partition),
                "lag": links.related(
                    "consumer-groups", group.group_id, "lags", topic, "partitions", partition
                ),
            },
        )
        for topic, partition in member.assignment
    ]
    return Answer(links.collection("KafkaConsumerAssignmentList", path, data))


# Lag


async def _lags(request: Request) -> tuple[GroupDescription, dict[TopicPartition, PartitionLag]]:
    group = await _group_of(request)
    return group, (await group_lags(proxy(request).client, [group.group_id]))[group.group_id]


def _reader(group: GroupDescription, where: TopicPartition) -> MemberDescription | None:
    return next((member for member in group.members if where in member.assignment), None)


def _lag_body(group: GroupDescription, where: TopicPartition, lag: PartitionLag, links: Links) -> Json:
    member = _reader(group, where)
    return links.resource(
        "KafkaConsumerLag",
        ("consumer-groups", group.group_id, "lags", where.topic, "partitions", where.partition),
        {
            "consumer_group_id": group.group_id,
            "topic_name": where.topic,
            "partition_id": where.partition,
            "current_offset": lag.committed,
            "log_end_offset": lag.end,
            "lag": lag.lag,
            "consumer_id": "" if member is None else member.member_id,
            "instance_id": None if member is None else member.instance_id,
            "client_id": "" if member is None else member.client_id,
        },
    )


async def list_lags(request: Request) -> Response:
    links = await links_of(request)
    group, lags = await _lags(request)
    data = [_lag_body(group, where, lag, links) for where, lag in sorted(lags.items())]
    path = ("consumer-groups", group.group_id, "lags")
    return Answer(links.collection("KafkaConsumerLagList", path, data))


async def get_lag(request: Request) -> Response:
    links = await links_of(request)
    group, lags = await _lags(request)
    where = TopicPartition(request.path_params["topic"], partition_of(request.path_params["partition"]))
    if where not in lags:
        raise error(404, f"The group has no offset of {where.topic[:100]}-{where.partition}.")
    return Answer(_lag_body(group, where, lags[where], links))


async def lag_summary(request: Request) -> Response:
    links = await links_of(request)
    group, lags = await _lags(request)
    known = {where: lag.lag for where, lag in lags.items() if lag.lag is not None}
    worst = max(known, key=lambda where: known[where], default=None)
    member = None if worst is None else _reader(group, worst)
    fields: Json = {
        "consumer_group_id": group.group_id,
        "max_lag": 0 if worst is None else known[worst],
        "total_lag": sum(known.values()),
        "max_lag_topic_name": None if worst is None else worst.topic,
        "max_lag_partition_id": None if worst is None else worst.partition,
        "max_lag_consumer_id": "" if member is None else member.member_id,
        "max_lag_client_id": "" if member is None else member.client_id,
        "max_lag_instance_id": None if member is None else member.instance_id,
    }
    path = ("consumer-groups", group.group_id, "lag-summary")
    return Answer(links.resource("KafkaConsumerGroupLagSummary", path, fields))


_GROUPS = "/clusters/{cluster:name}/consumer-groups"
_GROUP = f"{_GROUPS}/{{group:name}}"
ROUTES = [
    Route(_GROUPS, list_all),
    Route(_GROUP, get),
    Route(f"{_GROUP}/consumers", list_members),
    Route(f"{_GROUP}/consumers/{{consumer:name}}", get_member),
    Route(f"{_GROUP}/consumers/{{consumer:name}}/assignments", list_assignments),
    Route(f"{_GROUP}/lag-summary", lag_summary),
    Route(f"{_GROUP}/lags", list_lags),
    Route(f"{_GROUP}/lags/{{topic:name}}/partitions/{{partition:name}}", get_lag),
]
