"""Sessions of classic members: a member that is silent for too long is removed."""

from millrace.errors import Error

from .conftest import NewMember
from .members import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Coordinator, subscription


def test_heartbeats_keep_a_member_in(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    for _ in range(10):
        coordinator.advance(SESSION_MS - 1)
        assert member.heartbeat() is Error.NONE


def test_a_silent_member_is_out_when_its_session_ends(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    silent, alive = new_member(), new_member()
    coordinator.stabilize(silent, alive)
    coordinator.advance(SESSION_MS - 1)
    assert alive.heartbeat() is Error.NONE
    coordinator.advance(1)
    assert silent.heartbeat() is Error.UNKNOWN_MEMBER_ID
    assert alive.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert alive.join().error is Error.NONE
    assert alive.is_leader
    assert alive.known == [alive.member_id]


def test_a_group_whose_last_member_dies_is_empty(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    coordinator.advance(SESSION_MS)
    group = coordinator.group
    assert (group.state, group.generation, group.leader, group.protocol) == ("Empty", 2, None, None)
    assert member.heartbeat() is Error.UNKNOWN_MEMBER_ID
    assert member.join().error is Error.UNKNOWN_MEMBER_ID
    assert len(coordinator.timers) == 0


def test_heartbeats_count_between_join_and_sync(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.join_all(member)
    coordinator.advance(SESSION_MS - 1)
    assert member.heartbeat() is Error.NONE
    coordinator.advance(SESSION_MS - 1)
    assert member.sync().error is Error.NONE


def test_a_member_with_a_parked_request_need_not_heartbeat(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader = new_member(session_ms=REBALANCE_MS * 2)
    follower = new_member()
    coordinator.stabilize(leader, follower)
    follower.offers = [("range", subscription("payments"))]
    joining = follower.join()
    coordinator.advance(SESSION_MS * 3)
    assert not joining.arrived
    leader.join()
    assert joining.error is Error.NONE
    syncing = follower.sync()
    coordinator.advance(SESSION_MS * 3)
    leader.assign([leader, follower])
    assert syncing.error is Error.NONE
    coordinator.advance(SESSION_MS - 1)
    assert follower.heartbeat() is Error.NONE


def test_a_member_that_dies_after_a_long_wait_for_its_assignment_is_out(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(session_ms=REBALANCE_MS * 2), new_member()
    coordinator.join_all(leader, follower)
    syncing = follower.sync()
    coordinator.advance(SESSION_MS * 3)
    leader.assign([leader, follower])
    assert syncing.error is Error.NONE
    coordinator.advance(SESSION_MS - 1)
    assert follower.member_id in coordinator.group.members
    coordinator.advance(1)
    assert follower.member_id not in coordinator.group.members


def test_a_session_restarts_with_each_generation(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    coordinator.advance(SESSION_MS - 1)
    assert member.join().error is Error.NONE
    coordinator.advance(SESSION_MS - 1)
    assert member.sync().error is Error.NONE


def test_a_member_that_dies_while_others_join_is_not_waited_for(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    silent, alive = new_member(), new_member()
    coordinator.stabilize(silent, alive)
    alive.offers = [("range", subscription("payments"))]
    joining = alive.join()
    coordinator.advance(SESSION_MS)
    assert joining.error is Error.NONE
    assert list(coordinator.group.members) == [alive.member_id]


def test_heartbeats_of_strangers_are_refused(coordinator: Coordinator, new_member: NewMember) -> None:
    stranger = new_member()
    stranger.member_id = "stranger"
    assert stranger.heartbeat() is Error.UNKNOWN_MEMBER_ID
    coordinator.stabilize(new_member())
    assert stranger.heartbeat() is Error.UNKNOWN_MEMBER_ID


def test_a_dead_groups_timers_do_nothing(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    member.join()
    group = coordinator.group
    coordinator.groups.delete(member.group_id)
    assert group.state == "Dead"
    coordinator.advance(SESSION_MS + INITIAL_DELAY_MS)
    assert coordinator.groups.find(member.group_id) is None
    assert member.join().error is Error.UNKNOWN_MEMBER_ID


# Leaving


def test_a_member_that_leaves_makes_the_others_join_again(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.stabilize(leader, follower)
    assert leader.leave() is Error.NONE
    assert follower.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert follower.join().error is Error.NONE
    assert follower.is_leader


def test_the_last_to_leave_leaves_an_empty_group(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    assert member.leave() is Error.NONE
    assert (coordinator.group.state, coordinator.group.generation) == ("Empty", 2)
    assert member.leave() is Error.UNKNOWN_MEMBER_ID
    assert len(coordinator.timers) == 0


def test_a_group_is_empty_even_if_that_cannot_be_written(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member, next_member = new_member(), new_member()
    coordinator.stabilize(member)
    coordinator.disk.fail_next_write()
    assert member.leave() is Error.NONE
    assert (coordinator.group.state, coordinator.group.generation) == ("Empty", 2)
    coordinator.stabilize(next_member)
    assert next_member.generation == 3


def test_a_rebalance_does_not_wait_for_a_member_that_leaves(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    stays, leaves = new_member(), new_member()
    coordinator.stabilize(stays, leaves)
    answer = stays.join()
    assert leaves.leave() is Error.NONE
    assert answer.error is Error.NONE


def test_parked_requests_of_a_leaving_member_are_answered(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    stays, leaves = new_member(), new_member()
    coordinator.stabilize(stays)
    joining = leaves.enter()
    leaves.leave()
    assert joining.error is Error.UNKNOWN_MEMBER_ID
    leaves.member_id = ""
    leaves.enter()
    stays.join()
    syncing = leaves.sync()
    leaves.leave()
    assert syncing.error is Error.UNKNOWN_MEMBER_ID


def test_strangers_cannot_leave(coordinator: Coordinator, new_member: NewMember) -> None:
    stranger = new_member()
    assert stranger.leave() is Error.UNKNOWN_MEMBER_ID
    coordinator.stabilize(new_member())
    assert stranger.leave() is Error.UNKNOWN_MEMBER_ID
    stranger.member_id = "stranger"
    assert stranger.leave() is Error.UNKNOWN_MEMBER_ID
    assert coordinator.group.state == "Stable"


def test_a_group_may_come_back_from_being_empty(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.leave()
    coordinator.stabilize(new_member())
    assert coordinator.group.generation == 3
