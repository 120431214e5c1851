"""Syncing a classic group: the leader assigns, each member gets its part, and failures in between."""

import pytest

from millrace.errors import Error

from .conftest import NewMember
from .members import REBALANCE_MS, SESSION_MS, Coordinator


def test_each_member_gets_its_assignment_from_the_leader(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    members = [new_member() for _ in range(3)]
    coordinator.stabilize(*members)
    assert [member.assignment for member in members] == [member.work for member in members]


def test_followers_wait_for_the_leader(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    waiting = follower.sync()
    assert not waiting.arrived
    answer = leader.assign([leader, follower])
    assert answer.error is waiting.error is Error.NONE
    assert (answer.response.protocol_type, answer.response.protocol) == ("consumer", "range")


def test_a_follower_may_come_after_the_leader(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    leader.assign([leader, follower])
    assert follower.sync().response.assignment == follower.work


def test_a_member_the_leader_forgot_gets_nothing(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    leader.assign([leader])
    answer = follower.sync()
    assert (answer.error, answer.response.assignment) == (Error.NONE, b"")


def test_assignments_to_strangers_are_ignored(coordinator: Coordinator, new_member: NewMember) -> None:
    leader = new_member()
    coordinator.join_all(leader)
    leader.sync({leader.member_id: b"mine", "stranger": b"not mine"})
    assert leader.assignment == b"mine"
    assert list(coordinator.group.members) == [leader.member_id]


def test_assignments_of_a_follower_are_ignored(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    assert not follower.assign([leader, follower]).arrived
    assert coordinator.group.state == "CompletingRebalance"


def test_a_stale_generation_is_refused(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.join_all(member)
    member.generation -= 1
    assert member.sync().error is Error.ILLEGAL_GENERATION
    assert member.heartbeat() is Error.ILLEGAL_GENERATION


def test_a_stranger_is_refused(coordinator: Coordinator, new_member: NewMember) -> None:
    stranger = new_member()
    stranger.member_id = "stranger"
    assert stranger.sync().error is Error.UNKNOWN_MEMBER_ID
    member = new_member()
    coordinator.stabilize(member)
    assert stranger.sync().error is Error.UNKNOWN_MEMBER_ID
    member.leave()
    assert member.sync().error is Error.UNKNOWN_MEMBER_ID


def test_syncing_while_others_join_sends_one_back_to_join(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.stabilize(member)
    new_member().enter()
    assert member.sync().error is Error.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("protocol", [("connect", "range"), ("consumer", "sticky")])
def test_another_protocol_than_the_groups_is_refused(
    coordinator: Coordinator, new_member: NewMember, protocol: tuple[str, str]
) -> None:
    member = new_member()
    coordinator.join_all(member)
    assert member.sync(protocol=protocol).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol=("consumer", "range")).error is Error.NONE


def test_a_new_member_sends_parked_syncs_back_to_join(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    waiting = follower.sync()
    new_member().enter()
    assert waiting.error is Error.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_out(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member(session_ms=REBALANCE_MS * 2)
    coordinator.join_all(leader, follower)
    leader.assign([leader, follower])
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        assert leader.heartbeat() is Error.NONE
        coordinator.advance(SESSION_MS // 2)
    assert follower.heartbeat() is Error.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() is Error.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_assigns_is_replaced(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(session_ms=REBALANCE_MS * 2), new_member()
    coordinator.join_all(leader, follower)
    waiting = follower.sync()
    coordinator.advance(REBALANCE_MS)
    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert follower.join().error is Error.NONE
    assert follower.is_leader


def test_a_member_that_has_synced_is_not_expected_to_sync_again(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member(session_ms=REBALANCE_MS * 3)
    coordinator.stabilize(member)
    coordinator.advance(REBALANCE_MS * 2)
    assert member.heartbeat() is Error.NONE


def test_an_assignment_that_cannot_be_written_sends_all_members_back_to_join(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    waiting = follower.sync()
    coordinator.disk.fail_next_write()
    answer = leader.assign([leader, follower])
    assert answer.error is waiting.error is Error.NOT_COORDINATOR
    assert coordinator.group.state == "PreparingRebalance"
    coordinator.stabilize(leader, follower)
    assert leader.generation == 2


def test_an_assignment_too_large_for_the_log_is_an_error(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.join_all(member)
    assert member.sync({member.member_id: bytes(2 << 20)}).error is Error.UNKNOWN_SERVER_ERROR
    assert coordinator.group.state == "PreparingRebalance"


def test_a_group_that_cannot_be_written_is_not_made(coordinator: Coordinator, new_member: NewMember) -> None:
    coordinator.groups.find("any")
    coordinator.disk.fail_next_write()
    member = new_member()
    assert member.join().error is Error.NOT_COORDINATOR
    assert coordinator.groups.find(member.group_id) is None
    coordinator.stabilize(member)
