"""Topics that come, go and grow, and subscriptions by regular expression."""

import pytest

from millrace.errors import Error
from millrace.groups.subscriptions import REFRESH_INTERVAL_MS, match

from .consumers import ASSIGNMENT_INTERVAL_MS, HEARTBEAT_MS, Consumer, cluster_of, group_of, settle
from .members import Coordinator


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 2)


def topics_of(coordinator: Coordinator, member: Consumer) -> set[str]:
    return {cluster_of(coordinator).image.by_id[topic].name for topic, _ in member.owned}


def test_new_partitions_are_assigned(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    cluster_of(coordinator).add_partitions("orders", 5, None)
    member.beat()
    assert (member.indexes, member.epoch) == ([0, 1, 2, 3, 4], 2)


def test_topics_that_do_not_concern_the_group_do_not_move_it(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    cluster_of(coordinator).create_topic("returns", 5)
    member.beat()
    assert group_of(coordinator).epoch == 1


def test_a_subscribed_topic_may_come_later(coordinator: Coordinator) -> None:
    member = Consumer(coordinator, "returns")
    member.join()
    assert (member.epoch, member.owned) == (1, set())
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    cluster_of(coordinator).create_topic("returns", 2)
    member.beat()
    assert (member.epoch, member.indexes) == (2, [0, 1])


def test_a_deleted_topic_is_taken_away_and_one_of_its_name_is_another(coordinator: Coordinator) -> None:
    cluster = cluster_of(coordinator)
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.delete_topic(cluster.topics["orders"])
    settle(coordinator, member)
    assert (member.owned, group_of(coordinator).owners) == (set(), {})
    cluster.create_topic("orders", 3)
    settle(coordinator, member)
    assert member.owned == {(cluster.topics["orders"].topic_id, index) for index in range(3)}


def test_a_change_while_the_broker_was_down_is_found(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    cluster_of(coordinator).add_partitions("orders", 3, None)
    coordinator.restart()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    member.beat()
    assert member.indexes == [0, 1, 2]


def test_a_regex_must_match_the_whole_name(coordinator: Coordinator) -> None:
    for name in ("order", "orders-eu", "my-orders"):
        cluster_of(coordinator).create_topic(name, 1)
    member = Consumer(coordinator, regex="orders.*")
    assert member.join().member_epoch == 1
    assert member.owned == set(), "what it stands for is looked up apart from its heartbeat"
    assert member.interval_ms < HEARTBEAT_MS
    coordinator.advance(1)
    member.beat()
    assert topics_of(coordinator, member) == {"orders", "orders-eu"}
    assert group_of(coordinator).subscribed_topics() == {"orders", "orders-eu"}


def test_new_topics_that_match_are_found(coordinator: Coordinator) -> None:
    member = Consumer(coordinator, regex="orders.*")
    member.join()
    coordinator.advance(REFRESH_INTERVAL_MS)
    member.beat()
    cluster_of(coordinator).create_topic("orders-eu", 1)
    coordinator.advance(1)
    member.beat()
    coordinator.advance(1)
    member.beat()
    assert topics_of(coordinator, member) == {"orders", "orders-eu"}
    assert member.epoch == 3


def test_regexes_are_not_resolved_for_every_single_topic(coordinator: Coordinator) -> None:
    member = Consumer(coordinator, regex="orders.*")
    member.join()
    coordinator.advance(1)
    for number in range(5):
        cluster_of(coordinator).create_topic(f"orders-{number}", 1)
        coordinator.advance(1)
        member.beat()
    assert group_of(coordinator).epoch == 2
    coordinator.advance(REFRESH_INTERVAL_MS)
    settle(coordinator, member)
    assert (group_of(coordinator).epoch, len(member.owned)) == (3, 7)


def test_an_unused_regex_is_forgotten(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, regex="orders.*"), Consumer(coordinator, "orders")
    first.join()
    second.join()
    settle(coordinator, first, second)
    assert set(group_of(coordinator).resolved) == {"orders.*"}
    first.leave()
    assert group_of(coordinator).resolved == {}
    second.resubscribe(regex="or.*")
    settle(coordinator, second)
    second.resubscribe("orders", regex="")
    settle(coordinator, second)
    assert (group_of(coordinator).resolved, second.indexes) == ({}, [0, 1])
    coordinator.restart()
    assert group_of(coordinator).resolved == {}


def test_a_regex_and_names_together(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("returns", 1)
    member = Consumer(coordinator, "returns", regex="order.")
    member.join()
    settle(coordinator, member)
    assert topics_of(coordinator, member) == {"orders", "returns"}


def test_a_regex_that_another_member_brought_is_known_already(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, regex="orders.*"), Consumer(coordinator, regex="orders.*")
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    first.beat()
    second.join()
    assert group_of(coordinator).epoch == 3
    settle(coordinator, first, second)
    assert len(first.owned) == len(second.owned) == 1


@pytest.mark.parametrize("regex", ["(", "a(?=b)", r"(a)\1", "*"])
def test_expressions_that_re2_does_not_support_are_refused(coordinator: Coordinator, regex: str) -> None:
    member = Consumer(coordinator, regex=regex)
    error = member.error(
        rebalance_timeout_ms=1000,
        topic_names=[],
        topic_regex=regex,
        owned=set(),
    )
    assert error.error is Error.INVALID_REGULAR_EXPRESSION
    assert f"SubscribedTopicRegex `{regex}` is not a valid regular expression" in str(error.message)
    assert coordinator.groups.find("readers") is None


def test_an_expression_with_exponential_backtracking_is_fast() -> None:
    evil = "(a+)+b"
    assert match([evil, "a+"], ["a" * 249]) == {evil: frozenset(), "a+": frozenset(["a" * 249])}
