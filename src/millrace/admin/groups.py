"""Groups of both protocols: lists, describes and deletes them."""

from collections.abc import Iterable
from dataclasses import dataclass

from millrace.client import Client, Connection, CoordinatorType, Node, Outcomes, TopicPartition
from millrace.errors import Error, check
from millrace.wire.codec import MalformedMessage, decode
from millrace.wire.messages import consumer_group_describe as consumer_api
from millrace.wire.messages import delete_groups as delete_api
from millrace.wire.messages import describe_groups as classic_api
from millrace.wire.messages import list_groups as list_api
from millrace.wire.messages.consumer_protocol import ConsumerProtocolAssignment

EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"

# Kafka Connect's groups, for example, have another protocol; groups that only commit offsets have none.
CONSUMER_PROTOCOLS = ("consumer", "")

_STATES_VERSION, _TYPES_VERSION = 4, 5
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_VERSION_SIZE = 2
# Groups of the classic protocol are not found by ConsumerGroupDescribe.
_OF_ANOTHER_TYPE = (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group; its state and type are empty if the broker is too old to tell them."""

    group_id: str
    protocol_type: str
    state: str
    type: str

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type in CONSUMER_PROTOCOLS


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member; `target`, `epoch` and `is_upgraded` are None for members of classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members, and its coordinator; the epochs are None for classic groups."""

    group_id: str
    protocol_type: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type in CONSUMER_PROTOCOLS

    @property
    def assigned(self) -> set[TopicPartition]:
        """The partitions that members read."""
        return {partition for member in self.members for partition in member.assignment}


async def list_groups(
    client: Client, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[GroupListing]:
    """Every group of the cluster in the order of the ids, or those in certain states or of certain types."""
    request = list_api.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    lowest = _TYPES_VERSION if request.types_filter else _STATES_VERSION if request.states_filter else 0

    async def call(connection: Connection, broker_ids: list[int]) -> Outcomes[int, list[GroupListing]]:
        response = await connection.send(request, list_api.ListGroupsResponse, lowest=lowest)
        check(response.error_code)
        groups = [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in response.groups
        ]
        return Outcomes(dict.fromkeys(broker_ids, groups))

    await client.metadata([])
    by_broker = (await client.call_brokers(client.cluster.nodes, call)).all()
    return sorted(
        (group for groups in by_broker.values() for group in groups), key=lambda group: group.group_id
    )


async def describe_groups(client: Client, group_ids: Iterable[str]) -> Outcomes[str, GroupDescription]:
    """These groups; one that does not exist fails with GROUP_ID_NOT_FOUND."""

    async def call(connection: Connection, group_ids: list[str]) -> Outcomes[str, GroupDescription]:
        coordinator = Node(connection.node_id, *connection.address)
        outcomes: Outcomes[str, GroupDescription] = Outcomes()
        classic = group_ids
        if connection.offers(consumer_api.ConsumerGroupDescribeRequest):
            outcomes = await _describe_consumer_groups(connection, group_ids, coordinator)
            classic = [key for key, error in outcomes.failed.items() if error.error in _OF_ANOTHER_TYPE]
        if classic:
            for group_id in classic:
                outcomes.failed.pop(group_id, None)
            outcomes.update(await _describe_classic_groups(connection, classic, coordinator))
        return outcomes

    return await client.call_coordinators(CoordinatorType.GROUP, group_ids, call)


async def _describe_consumer_groups(
    connection: Connection, group_ids: list[str], coordinator: Node
) -> Outcomes[str, GroupDescription]:
    request = consumer_api.ConsumerGroupDescribeRequest(group_ids=group_ids)
    outcomes: Outcomes[str, GroupDescription] = Outcomes()
    for group in (await connection.send(request, consumer_api.ConsumerGroupDescribeResponse)).groups:
        described = GroupDescription(
            group_id=group.group_id,
            protocol_type="consumer",
            state=group.group_state,
            assignor=group.assignor_name,
            members=tuple(map(_consumer_member, group.members)),
            coordinator=coordinator,
            epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
        )
        outcomes.add(group.group_id, described, group.error_code, group.error_message)
    return outcomes


def _consumer_member(member: consumer_api.Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        epoch=member.member_epoch,
        is_upgraded={_CLASSIC_MEMBER: False, _CONSUMER_MEMBER: True}.get(member.member_type),
    )


def _partitions(assignment: consumer_api.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


async def _describe_classic_groups(
    connection: Connection, group_ids: list[str], coordinator: Node
) -> Outcomes[str, GroupDescription]:
    request = classic_api.DescribeGroupsRequest(groups=group_ids)
    outcomes: Outcomes[str, GroupDescription] = Outcomes()
    for group in (await connection.send(request, classic_api.DescribeGroupsResponse)).groups:
        error_code = group.error_code
        if error_code == Error.NONE and group.group_state == DEAD:
            # Brokers before 4.0 say this of a group that does not exist.
            error_code = Error.GROUP_ID_NOT_FOUND
        described = GroupDescription(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            state=group.group_state,
            assignor=group.protocol_data,
            members=tuple(_classic_member(member, group.protocol_type) for member in group.members),
            coordinator=coordinator,
        )
        outcomes.add(group.group_id, described, error_code, group.error_message)
    return outcomes


def _classic_member(member: classic_api.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    is_consumer = protocol_type in CONSUMER_PROTOCOLS
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_parse_assignment(member.member_assignment) if is_consumer else (),
    )


def _parse_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that the group's leader assigned to a member; none if the bytes cannot be read."""
    # A newer version begins like the newest that is known.
    version = min(int.from_bytes(content[:_VERSION_SIZE], "big"), ConsumerProtocolAssignment.versions[-1])
    try:
        assignment, _ = decode(ConsumerProtocolAssignment, version, content, _VERSION_SIZE)
    except MalformedMessage:
        return ()
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in assignment.assigned_partitions
        for index in topic.partitions
    )


async def delete_groups(client: Client, group_ids: Iterable[str]) -> Outcomes[str, None]:
    """Delete groups without members, with their committed offsets."""

    async def call(connection: Connection, group_ids: list[str]) -> Outcomes[str, None]:
        outcomes: Outcomes[str, None] = Outcomes()
        request = delete_api.DeleteGroupsRequest(groups_names=group_ids)
        for result in (await connection.send(request, delete_api.DeleteGroupsResponse)).results:
            outcomes.add(result.group_id, None, result.error_code)
        return outcomes

    return await client.call_coordinators(CoordinatorType.GROUP, group_ids, call)
