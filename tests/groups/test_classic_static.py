"""Static members (KIP-345): a process that comes back under its instance id finds its place kept."""

import re

import pytest

from millrace.errors import Error
from millrace.groups.classic_requests import MemberIdentity

from .conftest import NewMember
from .members import GROUP, REBALANCE_MS, SESSION_MS, Coordinator, subscription


def test_a_static_member_is_let_in_without_asking_for_an_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member(instance="one")
    answer = member.join()
    assert not answer.arrived
    coordinator.advance(10_000)
    assert re.fullmatch(r"one-[0-9a-f-]{36}", member.member_id)


def test_a_follower_that_restarts_gets_its_assignment_without_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    work = follower.assignment
    again = follower.restarted()
    answer = again.join()
    assert answer.error is Error.NONE
    assert again.member_id != follower.member_id
    assert (answer.response.generation, answer.response.leader) == (1, leader.member_id)
    assert answer.response.skip_assignment is False
    assert coordinator.group.state == "Stable"
    assert again.sync().response.assignment == work
    assert leader.heartbeat() is again.heartbeat() is Error.NONE


def test_a_leader_that_restarts_is_told_to_skip_the_assignment(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    again = leader.restarted()
    answer = again.join()
    assert answer.response.skip_assignment is True
    assert again.is_leader
    assert set(again.known) == {again.member_id, follower.member_id}
    assert again.sync().response.assignment == leader.assignment
    assert follower.heartbeat() is Error.NONE


@pytest.mark.parametrize("version", [5, 8])
def test_an_older_leader_that_restarts_takes_itself_for_a_follower(
    coordinator: Coordinator, new_member: NewMember, version: int
) -> None:
    leader = new_member(instance="one", version=version)
    coordinator.stabilize(leader, new_member(instance="two"))
    again = leader.restarted()
    answer = again.join()
    assert answer.response.leader == leader.member_id
    assert answer.response.members == ()
    assert again.sync().response.assignment == leader.assignment


def test_the_old_process_is_fenced(coordinator: Coordinator, new_member: NewMember) -> None:
    old, other = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(old, other)
    old.restarted().join()
    assert old.heartbeat() is Error.FENCED_INSTANCE_ID
    assert old.sync().error is Error.FENCED_INSTANCE_ID
    assert old.join().error is Error.FENCED_INSTANCE_ID
    assert old.leave() is Error.FENCED_INSTANCE_ID


def test_a_parked_join_of_the_old_process_is_fenced(coordinator: Coordinator, new_member: NewMember) -> None:
    old, other = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(old, other)
    joining = old.join()
    assert not joining.arrived
    again = old.restarted()
    answer = again.join()
    assert joining.error is Error.FENCED_INSTANCE_ID
    other.join()
    assert answer.error is Error.NONE
    assert len(coordinator.group.members) == 2


def test_a_parked_sync_of_the_old_process_is_fenced_and_all_join_again(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, old = new_member(instance="one"), new_member(instance="two")
    coordinator.join_all(leader, old)
    syncing = old.sync()
    again = old.restarted()
    answer = again.join()
    assert syncing.error is Error.FENCED_INSTANCE_ID
    assert coordinator.group.state == "PreparingRebalance"
    leader.join()
    assert answer.error is Error.NONE
    coordinator.sync_all(leader, again)
    assert again.assignment == again.work


def test_a_change_of_the_chosen_protocol_needs_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member(instance="one", assignors=["range", "sticky"])
    coordinator.stabilize(member)
    again = member.restarted()
    again.offers = list(reversed(member.offers))
    assert again.join().error is Error.NONE
    assert coordinator.group.protocol == "sticky"
    assert again.generation == 2


def test_a_subscription_alone_does_not_need_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    again = follower.restarted()
    again.offers = [("range", subscription("payments"))]
    assert again.join().error is Error.NONE
    assert coordinator.group.state == "Stable"
    assert coordinator.group.members[again.member_id].offers == (("range", subscription("payments")),)


def test_a_restarted_member_keeps_all_its_offers_without_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member(instance="one", assignors=["range", "sticky"])
    coordinator.stabilize(member)
    again = member.restarted()
    again.join()
    assert coordinator.group.state == "Stable"
    assert coordinator.group.members[again.member_id].offers == tuple(again.offers)


def test_a_member_that_restarts_before_it_syncs_may_sync_under_its_new_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    sessions_ms = REBALANCE_MS * 4
    leader = new_member(instance="one", session_ms=sessions_ms)
    follower = new_member(instance="two", session_ms=sessions_ms)
    coordinator.join_all(leader, follower)
    leader.assign([leader, follower])
    again = follower.restarted()
    assert again.join().error is Error.NONE
    assert again.sync().response.assignment == follower.work
    coordinator.advance(REBALANCE_MS * 2)
    assert leader.heartbeat() is again.heartbeat() is Error.NONE


def test_a_static_member_that_knows_its_id_joins_as_others_do(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    assert follower.join().response.generation == 1
    leader.join()
    assert follower.heartbeat() is Error.REBALANCE_IN_PROGRESS


def test_an_unknown_instance_with_an_id_is_unknown(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.instance = "unheard of"
    assert member.heartbeat() is Error.UNKNOWN_MEMBER_ID
    assert member.sync().error is Error.UNKNOWN_MEMBER_ID
    assert member.leave() is Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_keeps_static_members_that_do_not_join_until_their_session_ends(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    away = new_member(instance="one", session_ms=REBALANCE_MS * 2)
    here = new_member(instance="two", session_ms=REBALANCE_MS * 4)
    coordinator.stabilize(away, here)
    here.offers = [("range", subscription("payments"))]
    answer = here.join()
    coordinator.advance(REBALANCE_MS)
    assert answer.error is Error.NONE
    assert here.is_leader
    assert set(here.known) == {away.member_id, here.member_id}
    here.assign([away, here])
    coordinator.advance(REBALANCE_MS)
    assert here.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert list(coordinator.group.members) == [here.member_id]


def test_with_only_absent_static_members_a_rebalance_waits_for_their_sessions(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    members = [new_member(instance=name, session_ms=REBALANCE_MS * 3) for name in ("one", "two")]
    guest = new_member()
    coordinator.stabilize(*members)
    guest.enter()
    guest.leave()
    coordinator.advance(REBALANCE_MS)
    assert coordinator.group.state == "PreparingRebalance"
    assert len(coordinator.group.members) == 2
    coordinator.advance(REBALANCE_MS * 2)
    assert coordinator.group.state == "Empty"


def test_a_member_that_cannot_be_written_keeps_its_old_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    again = leader.restarted()
    again.offers = [("range", subscription("payments"))]
    coordinator.disk.fail_next_write()
    answer = again.join()
    assert answer.error is Error.NOT_COORDINATOR
    assert (answer.response.member_id, answer.response.leader) == ("", leader.member_id)
    assert leader.heartbeat() is Error.NONE
    assert coordinator.group.leader == leader.member_id
    assert coordinator.group.members[leader.member_id].offers == (("range", subscription("orders")),)
    coordinator.advance(SESSION_MS)
    assert leader.heartbeat() is Error.UNKNOWN_MEMBER_ID


def test_a_restart_of_the_broker_keeps_static_members_apart(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(instance="one"), new_member(instance="two")
    coordinator.stabilize(leader, follower)
    again = follower.restarted()
    again.join()
    again.sync()
    coordinator.restart()
    assert follower.heartbeat() is Error.FENCED_INSTANCE_ID
    assert again.heartbeat() is leader.heartbeat() is Error.NONE
    assert again.sync().response.assignment == follower.assignment


def test_an_administrator_removes_static_members_by_instance_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    one, two, dynamic = new_member(instance="one"), new_member(instance="two"), new_member()
    coordinator.stabilize(one, two, dynamic)
    outcomes = coordinator.groups.classic.leave(
        GROUP,
        [
            MemberIdentity(member_id="", group_instance_id="one"),
            MemberIdentity(member_id="", group_instance_id="unheard of"),
            MemberIdentity(member_id=dynamic.member_id),
            MemberIdentity(member_id="stranger"),
            MemberIdentity(member_id="somebody else", group_instance_id="two"),
        ],
    )
    assert outcomes == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.FENCED_INSTANCE_ID,
    ]
    assert list(coordinator.group.members) == [two.member_id]
    assert two.heartbeat() is Error.REBALANCE_IN_PROGRESS
