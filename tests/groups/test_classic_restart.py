"""Classic groups after a crash of the broker: the last stable generation is back, and its members go on."""

import time

from millrace.api.describe_groups import describe
from millrace.errors import Error

from .conftest import NewMember
from .members import INITIAL_DELAY_MS, SESSION_MS, Coordinator, subscription


def test_members_go_on_after_a_restart(coordinator: Coordinator, new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    coordinator.stabilize(leader, follower)
    before = describe(coordinator.group)
    coordinator.restart()
    assert describe(coordinator.group) == before
    assert leader.heartbeat() is follower.heartbeat() is Error.NONE
    assert follower.sync().response.assignment == follower.work
    assert coordinator.group.leader == leader.member_id
    assert coordinator.group.subscribed_topics() == {"orders"}


def test_a_restart_does_not_shorten_sessions(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    coordinator.advance(SESSION_MS - 1)
    coordinator.restart()
    coordinator.advance(SESSION_MS - 1)
    assert member.heartbeat() is Error.NONE


def test_members_that_died_with_the_broker_are_found(coordinator: Coordinator, new_member: NewMember) -> None:
    dead, alive = new_member(), new_member()
    coordinator.stabilize(dead, alive)
    coordinator.restart()
    coordinator.advance(SESSION_MS - 1)
    assert alive.heartbeat() is Error.NONE
    coordinator.advance(1)
    assert alive.heartbeat() is Error.REBALANCE_IN_PROGRESS
    coordinator.stabilize(alive)
    assert alive.generation == 2


def test_a_group_that_was_rebalancing_is_back_in_its_last_generation(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member, newcomer = new_member(), new_member()
    coordinator.stabilize(member)
    newcomer.enter()
    member.join()
    assert member.generation == 2
    coordinator.restart()
    assert coordinator.group.generation == 1
    assert member.heartbeat() is Error.ILLEGAL_GENERATION
    assert newcomer.heartbeat() is Error.UNKNOWN_MEMBER_ID
    coordinator.stabilize(member)


def test_an_empty_group_stays_empty(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.leave()
    coordinator.restart()
    assert (coordinator.group.state, coordinator.group.generation) == ("Empty", 2)
    assert coordinator.group.protocol_type == "consumer"


def test_a_new_group_is_there_after_a_restart(coordinator: Coordinator, new_member: NewMember) -> None:
    new_member().enter()
    coordinator.restart()
    assert (coordinator.group.state, coordinator.group.protocol_type) == ("Empty", "")


def test_a_deleted_group_stays_deleted(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.leave()
    coordinator.groups.delete(member.group_id)
    coordinator.restart()
    assert coordinator.groups.find(member.group_id) is None


def test_a_group_whose_end_could_not_be_written_empties_again(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.stabilize(member)
    coordinator.disk.fail_next_write()
    assert member.leave() is Error.NONE
    assert coordinator.group.state == "Empty"
    coordinator.restart()
    assert coordinator.group.state == "Stable"
    coordinator.advance(SESSION_MS)
    assert coordinator.group.state == "Empty"


def test_the_latest_of_many_generations_is_back(coordinator: Coordinator, new_member: NewMember) -> None:
    member = new_member(assignors=["range", "sticky"])
    for number in range(5):
        member.offers = [("range", subscription(f"topic-{number}")), ("sticky", subscription("other"))]
        coordinator.stabilize(member)
    coordinator.restart()
    assert coordinator.group.generation == 5
    assert coordinator.group.subscribed_topics() == {"topic-4"}


def test_a_thousand_members_join_and_join_again_in_no_time(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    started = time.process_time()
    members = [new_member() for _ in range(1_000)]
    coordinator.stabilize(*members)
    assert all(member.assignment == member.work for member in members)
    newcomer = new_member()
    answer = newcomer.enter()
    for member in members:
        member.join()
    assert answer.error is Error.NONE
    coordinator.sync_all(*members, newcomer)
    coordinator.restart()
    assert {member.heartbeat() for member in members} == {Error.NONE}
    assert time.process_time() - started < 5, "a thousand members took seconds of CPU"


def test_timers_of_a_quiet_group_are_its_sessions(coordinator: Coordinator, new_member: NewMember) -> None:
    coordinator.stabilize(*(new_member() for _ in range(5)))
    assert len(coordinator.timers) == 5
    coordinator.advance(INITIAL_DELAY_MS)
    assert coordinator.group.state == "Stable"
