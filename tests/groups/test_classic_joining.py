"""Joining a classic group: who is let in, when a generation is complete, and what its members are told."""

import re

import pytest

from millrace.errors import Error, KafkaError

from .conftest import NewMember
from .members import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Coordinator, subscription

FIVE_MINUTES_MS = 5 * 60 * 1000


def small(size: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("coordinator", [{"group.max.size": str(size)}], indirect=True)


# The first generation


def test_a_new_group_waits_for_more_members(coordinator: Coordinator, new_member: NewMember) -> None:
    answer = new_member().enter()
    coordinator.advance(INITIAL_DELAY_MS - 1)
    assert not answer.arrived
    assert coordinator.group.state == "PreparingRebalance"
    coordinator.advance(1)
    assert answer.error is Error.NONE
    assert coordinator.group.state == "CompletingRebalance"


def test_each_round_with_a_new_member_extends_the_wait(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first = new_member().enter()
    coordinator.advance(INITIAL_DELAY_MS - 1)
    second = new_member().enter()
    coordinator.advance(INITIAL_DELAY_MS)
    assert not first.arrived
    coordinator.advance(1)
    assert first.error is second.error is Error.NONE
    assert first.response.generation == second.response.generation == 1


def test_the_wait_is_never_longer_than_the_rebalance_timeout(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    answer = new_member(rebalance_ms=10_000).enter()
    for _ in range(9):
        new_member(rebalance_ms=10_000).enter()
        coordinator.advance(1_000)
        assert not answer.arrived
    new_member(rebalance_ms=10_000).enter()
    coordinator.advance(1_000)
    assert answer.error is Error.NONE
    assert len(coordinator.group.members) == 11


@pytest.mark.parametrize("coordinator", [{"group.initial.rebalance.delay.ms": "0"}], indirect=True)
def test_without_a_delay_the_first_member_is_let_in_at_once(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    answer = new_member().enter()
    coordinator.advance(0)
    assert answer.error is Error.NONE


def test_a_member_that_leaves_meanwhile_does_not_end_the_wait(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    stays, leaves = new_member(), new_member()
    answer = stays.enter()
    leaves.enter()
    assert leaves.leave() is Error.NONE
    assert not answer.arrived
    coordinator.advance(2 * INITIAL_DELAY_MS)
    assert answer.error is Error.NONE
    assert list(coordinator.group.members) == [stays.member_id]


# Ids


def test_a_dynamic_member_is_given_an_id_to_join_with(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member(client_id="my-client")
    assert member.join().error is Error.MEMBER_ID_REQUIRED
    assert re.fullmatch(r"my-client-[0-9a-f-]{36}", member.member_id)
    assert coordinator.group.state == "Empty"
    assert not member.join().arrived


@pytest.mark.parametrize("version", range(4))
def test_older_members_are_let_in_without_an_id(
    coordinator: Coordinator, new_member: NewMember, version: int
) -> None:
    answer = new_member(version=version).join()
    coordinator.advance(INITIAL_DELAY_MS)
    assert answer.error is Error.NONE


def test_an_id_that_is_not_used_is_forgotten(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    member.join()
    coordinator.advance(SESSION_MS)
    assert member.join().error is Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_clients_that_were_given_an_id(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first, second = new_member(), new_member()
    coordinator.stabilize(first)
    second.join()
    answer = first.join()
    assert not answer.arrived
    second.join()
    assert answer.error is Error.NONE


def test_a_rebalance_continues_when_an_id_is_not_used(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first, second = new_member(), new_member()
    coordinator.stabilize(first)
    second.join()
    answer = first.join()
    coordinator.advance(SESSION_MS)
    assert answer.error is Error.NONE
    assert list(coordinator.group.members) == [first.member_id]


def test_a_client_with_an_id_may_leave_before_joining(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first, second = new_member(), new_member()
    coordinator.stabilize(first)
    second.join()
    answer = first.join()
    assert second.leave() is Error.NONE
    assert answer.error is Error.NONE


def test_a_given_id_is_not_for_static_members(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    member.join()
    member.instance = "one"
    assert member.join().error is Error.UNKNOWN_SERVER_ERROR


def test_an_unknown_member_has_to_come_as_a_new_one(coordinator: Coordinator, new_member: NewMember) -> None:
    stranger = new_member()
    stranger.member_id = "stranger"
    assert stranger.join().error is Error.UNKNOWN_MEMBER_ID
    coordinator.stabilize(new_member())
    assert stranger.join().error is Error.UNKNOWN_MEMBER_ID


# What is refused


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, Error.INVALID_SESSION_TIMEOUT),
        (6_000, Error.MEMBER_ID_REQUIRED),
        (1_800_000, Error.MEMBER_ID_REQUIRED),
        (1_800_001, Error.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeouts_have_limits(new_member: NewMember, session_ms: int, error: Error) -> None:
    assert new_member(session_ms=session_ms).join().error is error


def test_a_group_needs_an_id(new_member: NewMember) -> None:
    member = new_member(group_id="")
    assert member.join().error is Error.INVALID_GROUP_ID
    assert member.sync().error is Error.INVALID_GROUP_ID
    assert member.heartbeat() is Error.INVALID_GROUP_ID
    with pytest.raises(KafkaError) as refused:
        member.leave()
    assert refused.value.error is Error.INVALID_GROUP_ID


@pytest.mark.parametrize(("protocol_type", "assignors"), [("", ["range"]), ("consumer", [])])
def test_a_member_needs_a_protocol(new_member: NewMember, protocol_type: str, assignors: list[str]) -> None:
    member = new_member(protocol_type=protocol_type, assignors=assignors)
    assert member.join().error is Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("settings", [{"protocol_type": "connect"}, {"assignors": ["sticky"]}])
def test_a_member_without_a_common_protocol_is_refused(
    coordinator: Coordinator, new_member: NewMember, settings: dict[str, object]
) -> None:
    member = new_member()
    coordinator.stabilize(member)
    assert new_member(**settings).join().error is Error.INCONSISTENT_GROUP_PROTOCOL
    member.offers = [("sticky", b"")]
    assert member.join().error is Error.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_any_protocol_type(coordinator: Coordinator, new_member: NewMember) -> None:
    consumer = new_member()
    coordinator.stabilize(consumer)
    consumer.leave()
    coordinator.stabilize(new_member(protocol_type="connect", assignors=["sessioned"]))
    assert coordinator.group.protocol_type == "connect"


@small(2)
def test_a_full_group_rejects_joins(coordinator: Coordinator, new_member: NewMember) -> None:
    coordinator.stabilize(new_member(), new_member())
    answer = new_member().join()
    assert answer.error is Error.GROUP_MAX_SIZE_REACHED
    assert answer.response.member_id == ""
    assert coordinator.group.state == "Stable"


@small(2)
def test_the_last_to_join_a_full_group_are_left_out(coordinator: Coordinator, new_member: NewMember) -> None:
    members = [new_member(version=3) for _ in range(3)]
    answers = [member.join() for member in members]
    coordinator.advance(2 * INITIAL_DELAY_MS)
    outcomes = [answer.error for answer in answers]
    assert outcomes == [Error.NONE, Error.NONE, Error.GROUP_MAX_SIZE_REACHED]


@small(2)
def test_members_of_a_full_group_join_again(coordinator: Coordinator, new_member: NewMember) -> None:
    members = [new_member(), new_member()]
    coordinator.stabilize(*members)
    coordinator.join_all(*members)
    assert {member.generation for member in members} == {2}


def test_a_group_that_has_become_too_large_shrinks(coordinator: Coordinator, new_member: NewMember) -> None:
    members = [new_member() for _ in range(3)]
    coordinator.stabilize(*members)
    coordinator.restart({"group.max.size": "2"})
    assert coordinator.group.state == "PreparingRebalance"
    assert {member.heartbeat() for member in members} == {Error.REBALANCE_IN_PROGRESS}
    answers = [member.join() for member in members]
    assert answers[2].error is Error.GROUP_MAX_SIZE_REACHED
    assert answers[0].error is answers[1].error is Error.NONE
    assert len(coordinator.group.members) == 2


# What members are told


def test_only_the_leader_learns_of_the_other_members(coordinator: Coordinator, new_member: NewMember) -> None:
    members = [new_member() for _ in range(3)]
    answers = [member.enter() for member in members]
    coordinator.advance(2 * INITIAL_DELAY_MS)
    leaders = [member for member in members if member.is_leader]
    assert leaders == members[:1]
    assert leaders[0].known == [member.member_id for member in members]
    assert members[1].known == members[2].known == []
    for answer in answers:
        assert answer.response.generation == 1
        assert answer.response.leader == leaders[0].member_id
        assert (answer.response.protocol_type, answer.response.protocol) == ("consumer", "range")
    assert {told.metadata for told in answers[0].response.members} == {subscription("orders")}


def test_the_protocol_with_most_votes_among_the_common_ones_is_taken(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    coordinator.join_all(
        new_member(assignors=["only mine", "range", "sticky"]),
        new_member(assignors=["sticky", "range"]),
        new_member(assignors=["sticky", "range", "only mine"]),
    )
    assert coordinator.group.protocol == "sticky"


def test_the_leader_gets_the_metadata_of_the_chosen_protocol(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    member.offers = [("a", b"for a"), ("b", b"for b")]
    answer = member.enter()
    other = new_member(assignors=["b"])
    other.enter()
    coordinator.advance(2 * INITIAL_DELAY_MS)
    assert answer.response.protocol == "b"
    assert answer.response.members[0].metadata == b"for b"


# The next generations


def test_a_new_member_makes_the_others_join_again(coordinator: Coordinator, new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    coordinator.stabilize(first)
    joined = second.enter()
    assert not joined.arrived
    assert first.heartbeat() is Error.REBALANCE_IN_PROGRESS
    again = first.join()
    assert again.error is joined.error is Error.NONE
    assert first.generation == second.generation == 2
    assert first.is_leader


def test_members_that_do_not_join_in_time_are_out(coordinator: Coordinator, new_member: NewMember) -> None:
    first, second = new_member(session_ms=REBALANCE_MS * 2), new_member()
    coordinator.stabilize(first)
    joined = second.enter()
    coordinator.advance(REBALANCE_MS)
    assert joined.error is Error.NONE
    assert second.is_leader
    assert second.known == [second.member_id]
    assert first.heartbeat() is Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_the_most_patient_member(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    first = new_member(session_ms=REBALANCE_MS * 10, rebalance_ms=REBALANCE_MS * 3)
    coordinator.stabilize(first)
    joined = new_member().enter()
    coordinator.advance(REBALANCE_MS * 3 - 1)
    assert not joined.arrived
    coordinator.advance(1)
    assert joined.error is Error.NONE


def test_a_leader_that_joins_again_starts_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.stabilize(leader, follower)
    answer = leader.join()
    assert not answer.arrived
    assert follower.heartbeat() is Error.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_again_unchanged_gets_its_generation(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.stabilize(leader, follower)
    answer = follower.join()
    assert answer.error is Error.NONE
    assert answer.response.generation == 1
    assert answer.response.leader == leader.member_id
    assert answer.response.members == ()
    assert coordinator.group.state == "Stable"
    assert follower.sync().response.assignment == follower.work


def test_a_follower_with_another_subscription_starts_a_rebalance(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.stabilize(leader, follower)
    follower.offers = [("range", subscription("orders", "payments"))]
    answer = follower.join()
    assert not answer.arrived
    leader.join()
    assert answer.error is Error.NONE
    assert coordinator.group.subscribed_topics() == {"orders", "payments"}


def test_a_member_that_missed_its_answer_gets_it_again(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    for member in leader, follower:
        answer = member.join()
        assert answer.error is Error.NONE
        assert answer.response.generation == 1
    assert leader.known == [leader.member_id, follower.member_id]
    assert coordinator.group.state == "CompletingRebalance"


def test_a_changed_member_restarts_a_rebalance_that_is_not_complete(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    waiting = follower.sync()
    leader.offers = [("range", subscription("payments"))]
    leader.join()
    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert coordinator.group.state == "PreparingRebalance"


def test_a_member_may_join_from_a_new_connection(coordinator: Coordinator, new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    coordinator.stabilize(first)
    second.enter()
    again = second.join()
    first.join()
    assert again.error is Error.NONE
    assert len(coordinator.group.members) == 2


def test_a_new_member_whose_client_gave_up_is_forgotten(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    patient_ms = FIVE_MINUTES_MS * 3
    first = new_member(session_ms=patient_ms // 2, rebalance_ms=patient_ms)
    coordinator.stabilize(first)
    answer = new_member(rebalance_ms=patient_ms).enter()
    coordinator.advance(FIVE_MINUTES_MS)
    assert answer.error is Error.UNKNOWN_MEMBER_ID
    assert list(coordinator.group.members) == [first.member_id]


def test_a_leader_that_does_not_join_is_replaced(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(session_ms=REBALANCE_MS * 2), new_member()
    coordinator.stabilize(leader, follower)
    follower.offers = [("range", subscription("payments"))]
    answer = follower.join()
    coordinator.advance(REBALANCE_MS)
    assert answer.error is Error.NONE
    assert follower.is_leader


def test_groups_are_apart(coordinator: Coordinator, new_member: NewMember) -> None:
    coordinator.stabilize(new_member())
    other = new_member(group_id="others")
    answer = other.enter()
    coordinator.advance(INITIAL_DELAY_MS)
    assert (answer.error, other.generation) == (Error.NONE, 1)
    assert coordinator.group.state == "Stable"
