"""Joining a group of the consumer protocol: ids, epochs, and what is refused."""

from typing import Any

import pytest

from millrace.errors import Error

from .consumers import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_MS,
    Consumer,
    cluster_of,
    group_of,
    settle,
    topic_id,
)
from .members import Coordinator

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "topic_names": ["orders"],
    "owned": set(),
}


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    response = member.join()
    assert (response.member_id, response.member_epoch) == (member.member_id, 1)
    assert response.interval_ms == HEARTBEAT_MS
    assert member.indexes == [0, 1, 2, 3]
    group = group_of(coordinator)
    assert (group.state, group.epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.kind, group.protocol_type) == ("consumer", "consumer")


def test_a_member_without_an_id_is_given_one_in_version_0(coordinator: Coordinator) -> None:
    member = Consumer(coordinator, version=0)
    assert len(member.join().member_id or "") == 22
    assert list(group_of(coordinator).members) == [member.member_id]


def test_an_unchanged_assignment_is_not_repeated(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    before = coordinator.groups.runtime.shard_of("readers").groups["readers"]
    log_end = sum(partition.log.log_end_offset for partition in cluster_of(coordinator).partitions)
    response = member.send()
    assert response.assignment is None
    assert sum(partition.log.log_end_offset for partition in cluster_of(coordinator).partitions) == log_end
    assert before is group_of(coordinator)


def test_members_that_come_together_are_provided_for_together(coordinator: Coordinator) -> None:
    first, second, third = (Consumer(coordinator) for _ in range(3))
    first.join()
    assert second.join().member_epoch == 1
    assert third.join().member_epoch == 1
    assert second.interval_ms < HEARTBEAT_MS, "who waits is asked to come back soon"
    group = group_of(coordinator)
    assert (group.state, group.epoch, group.assignment_epoch) == ("Assigning", 3, 1)
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.beat()
    assert (group.epoch, group.assignment_epoch) == (3, 3)
    settle(coordinator, first, second, third)
    assert sorted(map(len, (first.owned, second.owned, third.owned))) == [1, 1, 2]


@pytest.mark.parametrize("coordinator", [{"group.consumer.assignment.interval.ms": "0"}], indirect=True)
def test_without_an_interval_every_change_is_assigned_at_once(coordinator: Coordinator) -> None:
    for number in range(1, 4):
        Consumer(coordinator).join()
        assert group_of(coordinator).assignment_epoch == number


def test_joining_again_is_answered_with_the_assignment(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    response = member.join()
    assert response.member_epoch == 1
    assert member.indexes == [0, 1, 2, 3]
    assert len(group_of(coordinator).members) == 1


def test_a_full_heartbeat_is_answered_with_the_assignment(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    assert member.beat(full=True).assignment is not None
    assert member.beat().assignment is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"owned": {(bytes(16), 0)}},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    coordinator: Coordinator, fields: dict[str, Any], text: str
) -> None:
    error = Consumer(coordinator).error(**{**JOIN, **fields})
    assert (error.error, error.message) == (Error.INVALID_REQUEST, text)


def test_an_assignor_that_is_not_offered_is_refused(coordinator: Coordinator) -> None:
    error = Consumer(coordinator).error(**JOIN, server_assignor="sticky")
    assert error.error is Error.UNSUPPORTED_ASSIGNOR
    assert error.message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


def test_the_assignor_that_most_ask_for_is_taken(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("returns", 4)
    members = [Consumer(coordinator, "orders", "returns", assignor="range") for _ in range(2)]
    members.append(Consumer(coordinator, "orders", "returns", assignor="uniform"))
    for member in members:
        member.join()
    settle(coordinator, *members)
    assert coordinator.groups.consumer.assignor_name(group_of(coordinator)) == "range"
    # Range gives the same indexes of both topics to the same member.
    for member in members:
        orders, returns = (
            {index for topic, index in member.owned if topic == topic_id(coordinator, name)}
            for name in ("orders", "returns")
        )
        assert orders == returns


def test_heartbeats_to_a_group_that_is_not_there(coordinator: Coordinator) -> None:
    error = Consumer(coordinator).error(member_epoch=3)
    assert error.error is Error.GROUP_ID_NOT_FOUND
    assert Consumer(coordinator).error(member_epoch=-1).error is Error.GROUP_ID_NOT_FOUND


def test_heartbeats_of_an_unknown_member_are_rejected(coordinator: Coordinator) -> None:
    Consumer(coordinator).join()
    stranger = Consumer(coordinator)
    error = stranger.error(member_epoch=1)
    assert error.error is Error.UNKNOWN_MEMBER_ID
    assert error.message == f"Member {stranger.member_id} is not a member of group readers."
    assert stranger.error(member_epoch=-1).error is Error.UNKNOWN_MEMBER_ID


def test_an_epoch_that_is_not_the_members_is_fenced(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    cluster_of(coordinator).add_partitions("orders", 6, None)
    member.beat()
    assert member.epoch == 2
    error = member.error(member_epoch=3)
    assert error.error is Error.FENCED_MEMBER_EPOCH
    assert "greater member epoch (3) than the one known by the group coordinator (2)" in str(error.message)
    assert member.error(member_epoch=1).error is Error.FENCED_MEMBER_EPOCH, "it does not say what it owns"


def test_a_member_that_missed_its_last_answer_may_go_on(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    cluster_of(coordinator).add_partitions("orders", 6, None)
    member.beat(lose_answer=True)
    assert member.epoch == 1
    response = member.beat()
    assert response.member_epoch == 2
    assert member.indexes == [0, 1, 2, 3, 4, 5]


def test_a_member_that_owns_foreign_partitions_is_fenced(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    second.join()
    settle(coordinator, first, second)
    foreign = set(first.owned)
    second.leave()
    again = Consumer(coordinator)
    again.join()
    settle(coordinator, first, again)
    first.leave()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    before = again.epoch
    again.beat(lose_answer=True)
    foreign.add((topic_id(coordinator), 99))
    assert again.error(member_epoch=before, owned=foreign).error is Error.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("coordinator", [{"group.consumer.max.size": "1"}], indirect=True)
def test_a_full_group_rejects_new_members(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    error = Consumer(coordinator).error(**JOIN, member_epoch=0)
    assert error.error is Error.GROUP_MAX_SIZE_REACHED
    assert error.message == "The consumer group has reached its maximum capacity of 1 members."
    member.beat()
    member.join()


def test_an_empty_classic_group_gives_way(coordinator: Coordinator) -> None:
    from .members import Member

    classic = Member(coordinator)
    coordinator.stabilize(classic)
    classic.leave()
    assert coordinator.groups.get("readers").kind == "classic"
    Consumer(coordinator).join()
    assert group_of(coordinator).epoch == 1
    coordinator.restart()
    assert group_of(coordinator).epoch == 1
