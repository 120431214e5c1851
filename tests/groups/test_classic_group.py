"""A classic group as others see it: commits, subscriptions, descriptions."""

import struct

import pytest

from millrace.api.describe_groups import describe
from millrace.errors import Error, KafkaError
from millrace.groups.classic import ClassicGroup
from millrace.groups.group import Commit
from millrace.wire.messages.group_records import GroupMetadataValue, MemberMetadata

from .conftest import NewMember
from .members import Coordinator, Member, subscription


def outcome(group: ClassicGroup, commit: Commit) -> Error:
    try:
        group.validate_commit(commit)
    except KafkaError as error:
        return error.error
    return Error.NONE


def commit_of(member: Member, *, generation: int | None = None, transactional: bool = False) -> Commit:
    return Commit(
        member_id=member.member_id,
        group_instance_id=member.instance,
        generation=member.generation if generation is None else generation,
        is_transactional=transactional,
    )


OUTSIDE_CLIENT = Commit("", None, -1)
OUTSIDE_TRANSACTION = Commit("", None, -1, is_transactional=True)


# Commits


def test_members_of_this_generation_commit(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    assert outcome(coordinator.group, commit_of(member)) is Error.NONE
    assert outcome(coordinator.group, commit_of(member, generation=0)) is Error.ILLEGAL_GENERATION
    member.member_id = "stranger"
    assert outcome(coordinator.group, commit_of(member)) is Error.UNKNOWN_MEMBER_ID


def test_only_into_an_empty_group_may_anybody_commit(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    assert outcome(coordinator.group, OUTSIDE_CLIENT) is Error.UNKNOWN_MEMBER_ID
    member.leave()
    assert outcome(coordinator.group, OUTSIDE_CLIENT) is Error.NONE
    assert outcome(coordinator.group, commit_of(member)) is Error.UNKNOWN_MEMBER_ID


def test_members_commit_while_others_join(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    new_member().enter()
    assert outcome(coordinator.group, commit_of(member)) is Error.NONE


def test_commits_wait_until_the_assignments_are_known(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.join_all(member)
    assert outcome(coordinator.group, commit_of(member)) is Error.REBALANCE_IN_PROGRESS
    assert outcome(coordinator.group, commit_of(member, transactional=True)) is Error.NONE


def test_a_fenced_member_cannot_commit(coordinator: Coordinator, new_member: NewMember) -> None:
    member, other = new_member(instance="one"), new_member()
    coordinator.stabilize(member, other)
    member.restarted().join()
    assert outcome(coordinator.group, commit_of(member)) is Error.FENCED_INSTANCE_ID


def test_old_transactional_producers_send_no_member_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    coordinator.stabilize(new_member())
    assert outcome(coordinator.group, OUTSIDE_TRANSACTION) is Error.NONE


# Subscriptions


@pytest.mark.parametrize("version", range(4))
def test_topics_are_read_from_every_version_of_a_subscription(
    coordinator: Coordinator, new_member: NewMember, version: int
) -> None:
    first, second = new_member(), new_member()
    first.offers = [("range", subscription("a", "b", version=version))]
    second.offers = [("range", subscription("b", "c", version=version))]
    coordinator.stabilize(first, second)
    assert coordinator.group.subscribed_topics() == {"a", "b", "c"}


def test_the_topics_of_the_chosen_protocol_count(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    member.offers = [("range", subscription("a")), ("sticky", subscription("b"))]
    coordinator.stabilize(member)
    assert coordinator.group.subscribed_topics() == {"a"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0",
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih2s", 0, 1, 2, b"\xff\xfe"),
        subscription("orders")[:-6],
        bytes(range(256)),
    ],
)
def test_a_malformed_subscription_is_harmless(
    coordinator: Coordinator, new_member: NewMember, metadata: bytes
) -> None:
    odd, other = new_member(), new_member()
    odd.offers = [("range", metadata)]
    coordinator.stabilize(odd, other)
    assert coordinator.group.subscribed_topics() is None
    assert coordinator.group.offsets_idle_since(1) is None
    coordinator.restart()
    assert odd.heartbeat() is other.heartbeat() is Error.NONE
    assert coordinator.group.subscribed_topics() is None


def test_groups_of_other_types_have_no_topics(coordinator: Coordinator, new_member: NewMember) -> None:
    worker = new_member(protocol_type="connect", assignors=["sessioned"])
    worker.offers = [("sessioned", b"not a subscription")]
    coordinator.stabilize(worker)
    assert coordinator.group.subscribed_topics() == ()
    assert worker.assignment == worker.work


# Offsets


def test_offsets_of_a_group_with_members_may_be_deleted_only_of_consumers(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    consumer = new_member()
    coordinator.stabilize(consumer)
    coordinator.group.validate_delete_offsets()
    consumer.leave()
    worker = new_member(protocol_type="connect")
    coordinator.stabilize(worker)
    with pytest.raises(KafkaError) as refused:
        coordinator.group.validate_delete_offsets()
    assert refused.value.error is Error.NON_EMPTY_GROUP
    worker.leave()
    coordinator.group.validate_delete_offsets()


def test_offsets_age_from_when_the_group_became_empty(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.stabilize(member)
    coordinator.advance(1_000)
    member.leave()
    emptied_ms = coordinator.clock.now_ms()
    coordinator.advance(1_000)
    assert coordinator.group.offsets_idle_since(5) == emptied_ms
    coordinator.restart()
    assert coordinator.group.offsets_idle_since(5) == emptied_ms


def test_offsets_age_from_their_commit_where_the_groups_past_is_not_known() -> None:
    group = ClassicGroup("g")
    assert group.offsets_idle_since(5) == 5
    group.replay(GroupMetadataValue(protocol_type="consumer", generation=3, members=[]))
    assert group.offsets_idle_since(5) == 5


def test_offsets_of_other_topics_age_in_a_stable_group_of_consumers(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.join_all(member)
    assert coordinator.group.offsets_idle_since(5) is None
    coordinator.sync_all(member)
    assert coordinator.group.offsets_idle_since(5) == 5


def test_anybody_may_read_a_groups_offsets(coordinator: Coordinator, new_member: NewMember) -> None:
    coordinator.stabilize(new_member())
    coordinator.group.validate_fetch(None, -1)
    coordinator.group.validate_fetch("stranger", 7)


# Describing


def test_a_stable_group_shows_its_protocol_and_the_metadata_of_its_members(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    one, two = new_member(instance="one", client_id="app"), new_member()
    coordinator.stabilize(one, two)
    described = describe(coordinator.group)
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    first, second = described.members
    assert (first.member_id, first.group_instance_id) == (one.member_id, "one")
    assert (first.client_id, first.client_host) == ("app", "/127.0.0.1")
    assert (first.member_metadata, first.member_assignment) == (subscription("orders"), one.work)
    assert second.group_instance_id is None


def test_a_rebalancing_group_shows_only_its_members(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.join_all(member)
    described = describe(coordinator.group)
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    (only,) = described.members
    assert (only.member_id, only.member_metadata, only.member_assignment) == (member.member_id, b"", b"")


def test_an_empty_group_remembers_its_type(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.leave()
    described = describe(coordinator.group)
    assert (described.group_state, described.protocol_type) == ("Empty", "consumer")
    assert described.members == []


# Records


def test_records_of_old_brokers_have_no_rebalance_timeout() -> None:
    group = ClassicGroup("g")
    member = MemberMetadata(member_id="m", session_timeout=7_000, subscription=b"", assignment=b"a")
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member]
    )
    group.replay(value)
    assert group.state == "Stable"
    assert group.members["m"].rebalance_timeout_ms == 7_000


def test_the_record_of_a_group_restores_the_group() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=subscription("orders"),
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=5,
        members=[member],
    )
    group = ClassicGroup("g")
    group.replay(value)
    assert group.to_record().value == value
