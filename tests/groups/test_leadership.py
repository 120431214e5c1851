"""Groups whose partition has a follower, and coordinators that come and go."""

import asyncio

import pytest

from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import OFFSETS_TOPIC
from millrace.replication.partition import Partition

from ..coordinator.replicas import FOLLOWER, ME, catch_up, replicate
from .conftest import NewMember
from .consumers import Consumer, cluster_of, settle
from .group_state import live_state
from .members import GROUP, SESSION_MS, Coordinator


def log(coordinator: Coordinator) -> list[Partition]:
    return coordinator.cluster.partitions.of_topic(OFFSETS_TOPIC)


def resign(coordinator: Coordinator) -> None:
    """Another broker coordinates every group from now on."""
    for partition in log(coordinator):
        coordinator.groups.runtime.resigned(partition.index)
        partition.become_follower(partition.leader_epoch + 1, FOLLOWER)


def elect(coordinator: Coordinator) -> None:
    for partition in log(coordinator):
        epoch = partition.leader_epoch + 1
        partition.become_leader(epoch, (ME, FOLLOWER), (ME,), node_id=ME)
        coordinator.groups.runtime.elected(partition.index, epoch)
    asyncio.run(coordinator.groups.runtime.load())


def test_assignments_are_given_out_when_they_are_committed(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    leader, follower = new_member(), new_member()
    coordinator.join_all(leader, follower)
    replicate(log(coordinator))
    leading, other = (leader, follower) if leader.is_leader else (follower, leader)
    answers = [other.sync(), leading.assign((leader, follower))]
    assert coordinator.group.state == "Stable"
    assert [answer.arrived for answer in answers] == [False, False]
    # A member that asks again is told no sooner.
    assert coordinator.group.parked_syncs == {}
    catch_up(log(coordinator))
    assert [answer.error for answer in answers] == [Error.NONE, Error.NONE]


def test_members_that_wait_for_the_commit_learn_that_another_broker_coordinates(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.join_all(member)
    replicate(log(coordinator))
    answer = member.assign([member])
    assert not answer.arrived
    resign(coordinator)
    assert answer.error is Error.NOT_COORDINATOR


def test_parked_joins_learn_that_another_broker_coordinates(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    answers = [new_member().enter() for _ in range(3)]
    assert not any(answer.arrived for answer in answers)
    resign(coordinator)
    assert [answer.error for answer in answers] == [Error.NOT_COORDINATOR] * 3


def test_parked_syncs_learn_that_another_broker_coordinates(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    members = [new_member() for _ in range(3)]
    coordinator.join_all(*members)
    answers = [member.sync() for member in members if not member.is_leader]
    resign(coordinator)
    assert [answer.error for answer in answers] == [Error.NOT_COORDINATOR] * 2


def test_a_coordinator_that_resigns_leaves_no_timers(coordinator: Coordinator, new_member: NewMember) -> None:
    pending = len(coordinator.timers)
    coordinator.stabilize(new_member(), new_member(instance="static"))
    new_member().join()
    cluster_of(coordinator).create_topic("orders", 2)
    Consumer(coordinator).send(
        group_id="consumers", rebalance_timeout_ms=SESSION_MS, topic_regex="o.*", owned=set()
    )
    assert len(coordinator.timers) > pending
    resign(coordinator)
    assert len(coordinator.timers) == pending
    with pytest.raises(KafkaError) as refused:
        coordinator.groups.find(GROUP)
    assert refused.value.error is Error.NOT_COORDINATOR


def test_a_group_continues_with_the_next_coordinator(coordinator: Coordinator, new_member: NewMember) -> None:
    members = [new_member(), new_member(instance="static")]
    coordinator.stabilize(*members)
    before = live_state(coordinator)
    resign(coordinator)
    elect(coordinator)
    assert live_state(coordinator) == before
    assert [member.heartbeat() for member in members] == [Error.NONE, Error.NONE]
    coordinator.advance(SESSION_MS)
    assert coordinator.group.state != "Stable", "the sessions go on with it"


def test_a_consumer_group_continues_with_the_next_coordinator(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)
    consumers = [Consumer(coordinator), Consumer(coordinator)]
    settle(coordinator, *consumers)
    before = live_state(coordinator)
    resign(coordinator)
    elect(coordinator)
    assert live_state(coordinator) == before
    for consumer in consumers:
        consumer.beat()
    assert sorted(index for consumer in consumers for index in consumer.indexes) == [0, 1, 2, 3]
