"""Static members of consumer groups: away for a while, back under another id, never two at a time."""

import pytest

from millrace.errors import Error

from .consumers import ASSIGNMENT_INTERVAL_MS, SESSION_MS, Consumer, cluster_of, group_of, settle
from .members import Coordinator


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)


@pytest.fixture
def pair(coordinator: Coordinator) -> tuple[Consumer, Consumer]:
    static, other = Consumer(coordinator, instance="one"), Consumer(coordinator)
    static.join()
    other.join()
    settle(coordinator, static, other)
    return static, other


def test_a_static_member_that_is_back_in_time_finds_its_partitions(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, other = pair
    had, epoch = static.owned, group_of(coordinator).epoch
    static.leave(-2)
    other.beat()
    again = static.restarted()
    again.join()
    group = group_of(coordinator)
    assert (again.owned, again.epoch, group.epoch) == (had, epoch, epoch), "another member has noticed"
    assert set(group.members) == {again.member_id, other.member_id}
    coordinator.restart()
    assert set(group_of(coordinator).members) == {again.member_id, other.member_id}


def test_a_static_member_that_does_not_return_is_removed_after_its_session(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, other = pair
    response = static.send(member_epoch=-2)
    assert response.member_epoch == -2
    coordinator.advance(SESSION_MS // 2)
    other.beat()
    assert len(other.owned) == 2
    coordinator.advance(SESSION_MS // 2)
    other.beat()
    assert other.indexes == [0, 1, 2, 3]


def test_a_static_member_that_leaves_for_good_is_removed_at_once(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, other = pair
    static.leave()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    other.beat()
    assert other.indexes == [0, 1, 2, 3]


def test_a_second_process_of_the_same_instance_is_refused(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, _ = pair
    twin = static.restarted()
    error = twin.error(member_epoch=0, rebalance_timeout_ms=1000, topic_names=["orders"], owned=set())
    assert error.error is Error.UNRELEASED_INSTANCE_ID
    static.beat()


def test_a_replaced_static_member_is_fenced(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, _ = pair
    static.leave(-2)
    again = static.restarted()
    again.join()
    for epoch in (static.epoch, -1, -2):
        assert static.error(member_epoch=epoch).error is Error.FENCED_INSTANCE_ID


def test_an_unknown_instance_id_is_rejected(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    static, _ = pair
    for epoch in (2, -1, -2):
        error = static.error(instance_id="other", member_epoch=epoch)
        assert (error.error, error.message) == (Error.UNKNOWN_MEMBER_ID, "Instance id other is unknown.")


def test_a_static_member_that_missed_the_response_to_its_join_may_join_again(
    coordinator: Coordinator,
) -> None:
    static = Consumer(coordinator, instance="one")
    static.beat(full=True, lose_answer=True)
    assert static.join().member_epoch == 1
    assert static.indexes == [0, 1, 2, 3]


def test_a_new_subscription_of_a_returning_static_member_is_assigned(
    coordinator: Coordinator, pair: tuple[Consumer, Consumer]
) -> None:
    cluster_of(coordinator).create_topic("returns", 2)
    static, other = pair
    static.leave(-2)
    again = static.restarted()
    again.resubscribe("returns")
    again.join()
    settle(coordinator, again, other)
    assert again.indexes == [0, 1]
    assert other.indexes == [0, 1, 2, 3]
