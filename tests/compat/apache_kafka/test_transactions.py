"""Transactions: begun, written, ended and described as in Apache Kafka."""

from itertools import count

import pytest

from millrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from millrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from millrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from millrace.wire.messages.init_producer_id import InitProducerIdRequest
from millrace.wire.messages.list_transactions import ListTransactionsRequest
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

from .producers import TIMEOUT_MS, Producer, agree_on_state
from .twins import Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

# Clients that add each partition before they write to it, and those that need not (KIP-890).
OLD_PRODUCE, NEW_PRODUCE = 11, 12
_numbers = count(1)


@pytest.fixture
def topic(twins: Twins) -> str:
    name = f"transacted-{next(_numbers)}"
    twins.create_topic(name, 2)
    return name


@pytest.fixture
def producer(twins: Twins) -> Producer:
    producer = Producer(twins, f"producer-{next(_numbers)}")
    producer.start()
    return producer


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms"), [(None, 1), ("", 1), ("t", 0), ("t", -1), ("t", 10**9), (None, 0)]
)
def test_requesting_an_id(twins: Twins, transactional_id: str | None, timeout_ms: int) -> None:
    twins.agree_in_all(InitProducerIdRequest(transactional_id, timeout_ms))


def test_requesting_an_id_again(twins: Twins) -> None:
    for version in twins.versions(InitProducerIdRequest):
        name = f"again-{version}"
        for _ in range(2):
            twins.agree(InitProducerIdRequest(name, TIMEOUT_MS), version, "had")
        if version < 3:
            continue
        for _ in range(2):
            twins.agree(
                lambda peer, name=name: InitProducerIdRequest(
                    name, TIMEOUT_MS, peer.notes["had"].producer_id, peer.notes["had"].producer_epoch
                ),
                version,
            )
        for producer_id, epoch in ((999_999, 0), (5, -1), (-1, 3)):
            twins.agree(InitProducerIdRequest(name, TIMEOUT_MS, producer_id, epoch), version)
        twins.agree(InitProducerIdRequest(f"{name}-new", TIMEOUT_MS, 5, 0), version)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(twins: Twins, producer: Producer, topic: str, commit: bool) -> None:
    for version in twins.versions(AddPartitionsToTxnRequest):
        twins.agree(producer.adding({topic: [0]}), version)
    agree_on_state(twins, producer, topic)
    twins.agree(producer.writing(topic, 0), OLD_PRODUCE)
    agree_on_state(twins, producer, topic)
    twins.agree(producer.writing(topic, 0), OLD_PRODUCE)
    group = f"group-of-{producer.transactional_id}"
    twins.agree(producer.adding_offsets(group), 4)
    twins.agree(producer.committing_offsets(group, topic), 4)
    fetched = [OffsetFetchRequestTopic(topic, [0])]
    for stable in (False, True):
        twins.agree(OffsetFetchRequest(group, fetched, require_stable=stable), 7)
    producer.end(commit, 4)
    agree_on_state(twins, producer, topic)
    for stable in (False, True):
        twins.agree(OffsetFetchRequest(group, fetched, require_stable=stable), 7)
    # Repeating it succeeds; the opposite is too late.
    for ended in (commit, not commit):
        twins.agree(producer.ending(ended), 4)
    twins.agree(producer.writing(topic, 2), OLD_PRODUCE)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_with_an_epoch_of_its_own(
    twins: Twins, producer: Producer, topic: str, commit: bool
) -> None:
    twins.agree(producer.writing(topic, 0), NEW_PRODUCE)
    agree_on_state(twins, producer, topic)
    twins.agree(producer.committing_offsets("new-group", topic), 5)
    producer.end(commit, 5)
    agree_on_state(twins, producer, topic)
    twins.agree(producer.ending(commit), 5)
    twins.agree(producer.writing(topic, 2), NEW_PRODUCE)


def test_ending_nothing(twins: Twins, producer: Producer) -> None:
    for version in range(5):
        for commit in (True, False):
            twins.agree(producer.ending(commit), version)


def test_invalid_partitions_are_not_added(twins: Twins, producer: Producer, topic: str) -> None:
    ghost = Producer(twins, "ghost")
    for peer in twins:
        peer.notes["ghost"] = peer.notes[producer.transactional_id]
    for version in twins.versions(AddPartitionsToTxnRequest):
        for topics in ({"never": [0]}, {topic: [0], "never": [0]}, {topic: [9]}, {}):
            twins.agree(producer.adding(topics), version)
        for epochs in (-1, 1):
            twins.agree(producer.adding({topic: [0]}, epochs=epochs), version)
        twins.agree(ghost.adding({topic: [0]}), version)
    twins.agree(producer.adding({"__consumer_offsets": [0]}), 3)
    for version in (4, 5):
        twins.agree(producer.adding({topic: [0]}, verify=True), version)


def test_invalid_writes(twins: Twins, producer: Producer, topic: str) -> None:
    twins.agree(producer.adding({topic: [0]}), 3)
    twins.agree(producer.writing(topic, 0), OLD_PRODUCE)
    for wrong in (
        producer.writing(topic, 5),
        producer.writing(topic, 2, partition=1),
        producer.writing(topic, 2, epochs=-1),
        producer.writing(topic, 2, transactional_id=None),
        producer.writing(topic, 2, transactional=False),
    ):
        twins.agree(wrong, OLD_PRODUCE)
    agree_on_state(twins, producer, topic)


def test_invalid_ends_and_commits(twins: Twins, producer: Producer, topic: str) -> None:
    ghost = Producer(twins, "ghost")
    for peer in twins:
        peer.notes["ghost"] = peer.notes[producer.transactional_id]
    twins.agree(producer.adding({topic: [0]}), 3)
    for version in range(5):
        twins.agree(ghost.ending(True), version)
        twins.agree(ghost.adding_offsets("some-group"), version)
        for epochs in (-1, 1):
            twins.agree(producer.ending(True, epochs=epochs), version)
            twins.agree(producer.adding_offsets("some-group", epochs=epochs), version)
        twins.agree(producer.adding_offsets(""), version)
        twins.agree(producer.adding_offsets("some-group"), version)
        twins.agree(producer.committing_offsets("", topic), version)
        twins.agree(producer.committing_offsets("some-group", "never"), version)
        twins.agree(producer.committing_offsets("some-group", topic, 9), version)


def test_describing_transactions(twins: Twins) -> None:
    twins.agree(DescribeTransactionsRequest(["ghost-of-a-ghost", ""]), 0)
    twins.agree(DescribeTransactionsRequest([]), 0)
    asked = [TopicRequest("never", [0]), TopicRequest("a b", [0])]
    twins.agree(DescribeProducersRequest(asked), 0)
    twins.agree_in_all(ListTransactionsRequest(state_filters=["Unknown"]))
    twins.agree_in_all(ListTransactionsRequest(transactional_id_pattern="["), since=2)
