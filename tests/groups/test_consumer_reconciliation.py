"""Partitions go from member to member one after the other, and who is too slow is taken out."""

import pytest

from millrace.errors import Error
from millrace.groups.consumer_member import ConsumerMember, MemberState
from millrace.groups.reconciliation import Target, reconcile

from .consumers import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Consumer,
    cluster_of,
    group_of,
    settle,
)
from .members import REBALANCE_MS, Coordinator


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)


def state_of(coordinator: Coordinator, member: Consumer) -> MemberState:
    return group_of(coordinator).members[member.member_id].state


def test_partitions_are_given_up_before_they_are_given_away(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)

    second.join()
    assert (second.epoch, second.owned) == (2, set())
    assert state_of(coordinator, second) is MemberState.UNRELEASED_PARTITIONS

    response = first.beat()
    assert (first.epoch, len(first.owned)) == (1, 2), "it stays where it is until it has given up the rest"
    assert response.assignment is not None
    assert state_of(coordinator, first) is MemberState.UNREVOKED_PARTITIONS
    assert group_of(coordinator).state == "Reconciling"
    second.beat()
    assert second.owned == set()

    first.beat()
    assert (first.epoch, state_of(coordinator, first)) == (2, MemberState.STABLE)
    second.beat()
    assert (second.epoch, len(second.owned)) == (2, 2)
    assert state_of(coordinator, second) is MemberState.STABLE
    assert group_of(coordinator).state == "Stable"


def test_a_member_that_still_owns_them_has_not_given_them_up(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    everything = set(first.owned)
    first.beat()
    first.send(owned=everything)
    first.send()
    assert state_of(coordinator, first) is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None


def test_a_member_that_does_not_give_up_its_partitions_is_out(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    first.beat()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        first.send()
        coordinator.advance(HEARTBEAT_MS)
        second.beat()
    assert list(group_of(coordinator).members) == [second.member_id]
    assert first.error().error is Error.UNKNOWN_MEMBER_ID
    settle(coordinator, second)
    assert second.indexes == [0, 1, 2, 3]


def test_a_member_that_revokes_in_time_stays(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    first.beat()
    for _ in range(2 * REBALANCE_MS // HEARTBEAT_MS):
        first.beat()
        second.beat()
        coordinator.advance(HEARTBEAT_MS)
    assert len(group_of(coordinator).members) == 2


def test_a_silent_member_is_out_after_its_session(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    second.join()
    settle(coordinator, first, second)
    for _ in range(SESSION_MS // HEARTBEAT_MS):
        coordinator.advance(HEARTBEAT_MS)
        second.beat()
    group = group_of(coordinator)
    assert list(group.members) == [second.member_id]
    assert (group.state, set(group.owners.values())) == ("Stable", {second.member_id})
    assert second.indexes == [0, 1, 2, 3]


def test_the_last_one_leaves_an_empty_group(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(SESSION_MS)
    group = group_of(coordinator)
    assert (group.state, group.is_empty, group.epoch, group.owners) == ("Empty", True, 2, {})
    assert not len(coordinator.timers)
    coordinator.groups.delete("readers")
    assert coordinator.groups.find("readers") is None


def test_partitions_of_a_leaving_member_are_free_at_once(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    second.join()
    settle(coordinator, first, second)
    response = first.send(member_epoch=-1)
    assert (response.member_id, response.member_epoch) == (first.member_id, -1)
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.beat()
    assert second.indexes == [0, 1, 2, 3]


def test_an_append_that_fails_changes_nothing(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    coordinator.disk.fail_next_write()
    assert (
        second.error(rebalance_timeout_ms=REBALANCE_MS, topic_names=["orders"], owned=set()).error
        is Error.NOT_COORDINATOR
    )
    group = group_of(coordinator)
    assert (list(group.members), group.epoch) == ([first.member_id], 1)
    second.join()
    assert group.epoch == 2


def test_removing_a_member_is_retried(coordinator: Coordinator) -> None:
    Consumer(coordinator).join()
    coordinator.disk.fail_next_write()
    coordinator.advance(SESSION_MS)
    assert not group_of(coordinator).is_empty
    coordinator.advance(1_000)
    assert group_of(coordinator).is_empty


def test_a_changed_subscription_takes_partitions_away_at_once(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("returns", 2)
    member = Consumer(coordinator, "orders", "returns")
    member.join()
    member.resubscribe("returns")
    member.beat()
    assert member.indexes == [0, 1], "although the next assignment has to wait"
    settle(coordinator, member)
    assert member.indexes == [0, 1]


def test_a_member_may_keep_a_partition_that_it_is_giving_up() -> None:
    """A new target gives it back; its only owner is the member itself."""
    partition = (b"t" * 16, 0)
    member = ConsumerMember(
        "m", epoch=3, state=MemberState.UNREVOKED_PARTITIONS, assigned={}, revoking={partition: 2}
    )
    after = reconcile(
        member,
        Target(5, {partition}),
        topics={b"t" * 16},
        taken={partition},
        owned=set(),
        subscription_changed=False,
    )
    assert (after.state, after.epoch, after.assigned) == (MemberState.STABLE, 5, {partition: 5})
