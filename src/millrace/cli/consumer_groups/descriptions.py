"""What the coordinators tell of groups and their members, of whichever protocol."""

from collections.abc import Iterable
from dataclasses import dataclass

from millrace.cli.client import Client, Connection
from millrace.cli.consumer_groups.listing import CONSUMER_PROTOCOLS
from millrace.cli.coordinators import KeyType, by_broker, find_coordinators, until_coordinated
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import Place
from millrace.errors import Error
from millrace.wire.codec import decode
from millrace.wire.messages import consumer_group_describe as new_api
from millrace.wire.messages import describe_groups as classic_api
from millrace.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from millrace.wire.messages.find_coordinator import Coordinator

EMPTY, DEAD, STABLE = "Empty", "Dead", "Stable"

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_VERSION_SIZE = 2


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member; what only the new protocol has is None for members of classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Place, ...]
    target: tuple[Place, ...] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members, and the broker that coordinates it."""

    group_id: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Coordinator
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def assigned(self) -> set[Place]:
        return {place for member in self.members for place in member.assignment}


def describe_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    """The groups that exist, in the order asked for."""
    wanted = list(group_ids)
    found = until_coordinated(client, lambda: _describe(client, wanted))
    return {group_id: found[group_id] for group_id in wanted if group_id in found}


def _describe(client: Client, group_ids: list[str]) -> dict[str, GroupDescription]:
    coordinators = find_coordinators(client, group_ids, KeyType.GROUP)
    found: dict[str, GroupDescription] = {}
    for node_id, ids in by_broker(coordinators).items():
        connection = client.broker(node_id)
        if connection.offers(new_api.ConsumerGroupDescribeRequest):
            found |= _describe_new(connection, ids, coordinators)
        others = [group_id for group_id in ids if group_id not in found]
        if others:
            found |= _describe_classic(connection, others, coordinators)
    return found


def _describe_new(
    connection: Connection, group_ids: list[str], coordinators: dict[str, Coordinator]
) -> dict[str, GroupDescription]:
    request = new_api.ConsumerGroupDescribeRequest(group_ids=group_ids)
    described = {}
    for group in connection.send(request, new_api.ConsumerGroupDescribeResponse).groups:
        # Groups of the classic protocol are not found by this request.
        if group.error_code in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION):
            continue
        check(group.error_code, group.error_message)
        described[group.group_id] = GroupDescription(
            group_id=group.group_id,
            state=group.group_state,
            assignor=group.assignor_name,
            members=tuple(_new_member(member) for member in group.members),
            coordinator=coordinators[group.group_id],
            epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
        )
    return described


def _new_member(member: new_api.Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_places(member.assignment),
        target=_places(member.target_assignment),
        epoch=member.member_epoch,
        is_upgraded={_CLASSIC_MEMBER: False, _CONSUMER_MEMBER: True}.get(member.member_type),
    )


def _places(assignment: new_api.Assignment) -> tuple[Place, ...]:
    return tuple(
        (topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def _describe_classic(
    connection: Connection, group_ids: list[str], coordinators: dict[str, Coordinator]
) -> dict[str, GroupDescription]:
    request = classic_api.DescribeGroupsRequest(groups=group_ids)
    described = {}
    for group in connection.send(request, classic_api.DescribeGroupsResponse).groups:
        # Older brokers call a group that does not exist dead.
        if group.error_code == Error.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            continue
        check(group.error_code, group.error_message)
        if group.protocol_type not in CONSUMER_PROTOCOLS:
            raise CommandError(f"GroupId {group.group_id} is not a consumer group ({group.protocol_type}).")
        described[group.group_id] = GroupDescription(
            group_id=group.group_id,
            state=group.group_state,
            assignor=group.protocol_data,
            members=tuple(_classic_member(member) for member in group.members),
            coordinator=coordinators[group.group_id],
        )
    return described


def _classic_member(member: classic_api.DescribedGroupMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_parse_assignment(member.member_assignment),
    )


def _parse_assignment(content: bytes) -> tuple[Place, ...]:
    """The partitions that the group's leader gave a member; none before it has."""
    if not content:
        return ()
    # Whoever wrote a newer version kept to the older one's beginning.
    version = min(int.from_bytes(content[:_VERSION_SIZE], "big"), ConsumerProtocolAssignment.versions[-1])
    assignment, _ = decode(ConsumerProtocolAssignment, version, content, _VERSION_SIZE)
    return tuple(
        (topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
    )
