"""Rules for names, partitions and replicas."""

from collections import Counter

import pytest

from millrace.cluster.image import TopicImage
from millrace.cluster.placement import place_replicas
from millrace.cluster.topic_rules import (
    check_assignments,
    check_auto_creation,
    check_topic_name,
    new_uuid,
)
from millrace.config import BrokerConfig
from millrace.errors import Error, KafkaError
from millrace.wire.schema import ZERO_UUID, uuid_to_text


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "...", "-"])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a/b", "characters other than ASCII alphanumerics"),
        ("a b", "characters other than ASCII alphanumerics"),
        ("ä", "characters other than ASCII alphanumerics"),
        ("a\n", "characters other than ASCII alphanumerics"),
    ],
)
def test_illegal_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_topic_name(name)
    assert raised.value.error is Error.INVALID_TOPIC_EXCEPTION
    assert raised.value.message.startswith("Topic name is invalid: ")
    assert reason in raised.value.message


def test_ids_are_never_reserved_and_never_look_like_a_flag() -> None:
    ids = [new_uuid() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert ZERO_UUID not in ids
    assert not any(uuid_to_text(topic_id).startswith("-") for topic_id in ids)


def test_the_coordinators_topics_are_internal() -> None:
    assert TopicImage("__consumer_offsets", new_uuid(), ()).internal
    assert not TopicImage("__mine", new_uuid(), ()).internal


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ({1: [1]}, "consecutive 0-based"),
        ({0: []}, "an empty replica list"),
        ({0: [2]}, "broker 2, but no such broker is registered"),
        ({0: [1, 1]}, "the broker 1 more than once"),
    ],
)
def test_bad_assignments_are_refused(assignments: dict[int, list[int]], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        check_assignments(assignments, brokers=[1])
    assert raised.value.error is Error.INVALID_REPLICA_ASSIGNMENT


def test_auto_creation_can_be_switched_off() -> None:
    check_auto_creation(BrokerConfig.from_properties({}), "orders")
    config = BrokerConfig.from_properties({"auto.create.topics.enable": "false"})
    with pytest.raises(KafkaError) as unknown:
        check_auto_creation(config, "orders")
    assert unknown.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as illegal:
        check_auto_creation(config, "a/b")
    assert illegal.value.error is Error.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("brokers", [1, 3, 5])
@pytest.mark.parametrize("factor", [1, 3])
def test_replicas_are_spread_evenly_over_different_brokers(brokers: int, factor: int) -> None:
    factor = min(factor, brokers)
    placed = place_replicas(range(10, 10 + brokers), 60, factor)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {60 // brokers}
    held = Counter(broker for replicas in placed for broker in replicas)
    assert max(held.values()) - min(held.values()) <= 60 // brokers
