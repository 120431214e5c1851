"""Groups of the consumer protocol after kill -9: as they were, and their members have time to return."""

from typing import Any

import pytest

from millrace.groups.consumer import ConsumerGroup

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


def kept(group: ConsumerGroup) -> dict[str, Any]:
    """Everything that must be the same after a restart."""
    memory_only = {"seen_topics_version", "resolved_topics_version"}
    return {name: value for name, value in vars(group).items() if name not in memory_only}


def test_members_of_a_stable_group_do_not_notice_a_restart(coordinator: Coordinator) -> None:
    members = [Consumer(coordinator, regex="or.*"), Consumer(coordinator, instance="one", assignor="range")]
    for member in members:
        member.join()
    settle(coordinator, *members)
    before = kept(group_of(coordinator))
    coordinator.restart()
    assert kept(group_of(coordinator)) == before
    owned = [set(member.owned) for member in members]
    for member in members:
        member.beat()
    assert [member.owned for member in members] == owned
    coordinator.advance(SESSION_MS - 1)
    assert len(group_of(coordinator).members) == 2
    coordinator.advance(1)
    assert group_of(coordinator).is_empty


def test_a_revocation_under_way_continues_after_a_restart(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    first.beat()
    before = kept(group_of(coordinator))
    coordinator.restart()
    assert kept(group_of(coordinator)) == before
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        first.send()
        second.beat()
        coordinator.advance(HEARTBEAT_MS)
    assert list(group_of(coordinator).members) == [second.member_id]


def test_a_deleted_group_stays_deleted(coordinator: Coordinator) -> None:
    member = Consumer(coordinator, regex="or.*")
    member.join()
    coordinator.advance(1)
    member.leave()
    coordinator.groups.delete("readers")
    coordinator.restart()
    assert coordinator.groups.find("readers") is None


def test_tombstones_leave_nothing_of_a_group_whatever_its_state(coordinator: Coordinator) -> None:
    members = [Consumer(coordinator, regex="or.*"), Consumer(coordinator)]
    for member in members:
        member.join()
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    records = group_of(coordinator).tombstones()
    coordinator.groups.runtime.write("readers", lambda shard: (records, None))
    assert coordinator.groups.find("readers") is None
    coordinator.restart()
    assert coordinator.groups.find("readers") is None
