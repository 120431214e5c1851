"""Transactions: begun, written, ended and told of as Apache Kafka does it."""

import time
from dataclasses import dataclass
from itertools import count

import pytest

from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from millrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.init_producer_id import InitProducerIdRequest
from millrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millrace.wire.messages.list_transactions import ListTransactionsRequest
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millrace.wire.records import TRANSACTIONAL_BIT, Record, build_batch

from .twins import Asked, Peer, Twins, until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TIMEOUT_MS = 60_000
# Clients that add each partition before they write to it, and those that need not (KIP-890).
OLD_PRODUCE, NEW_PRODUCE = 11, 12
_numbers = count(1)


@pytest.fixture
def topic(twins: Twins) -> str:
    name = f"transacted-{next(_numbers)}"
    twins.create_topic(name, 2)
    return name


@dataclass
class Producer:
    """A transactional producer of both brokers; each has its own id and epoch for it."""

    twins: Twins
    transactional_id: str

    def start(self) -> None:
        self.twins.agree(InitProducerIdRequest(self.transactional_id, TIMEOUT_MS), 5, self.transactional_id)

    def id_and_epoch(self, peer: Peer, epochs: int = 0) -> tuple[int, int]:
        told = peer.notes[self.transactional_id]
        return told.producer_id, told.producer_epoch + epochs

    def adding(self, topics: dict[str, list[int]], *, epochs: int = 0, verify: bool = False) -> Asked:
        added = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]

        def asked(peer: Peer) -> AddPartitionsToTxnRequest:
            producer = self.id_and_epoch(peer, epochs)
            transaction = AddPartitionsToTxnTransaction(self.transactional_id, *producer, verify, added)
            return AddPartitionsToTxnRequest([transaction], self.transactional_id, *producer, added)

        return asked

    def writing(
        self, topic: str, sequence: int, *, epochs: int = 0, partition: int = 0, **other: object
    ) -> Asked:
        named = other.get("transactional_id", self.transactional_id)
        now = int(time.time() * 1000)

        def asked(peer: Peer) -> ProduceRequest:
            producer_id, epoch = self.id_and_epoch(peer, epochs)
            batch = build_batch(
                [Record(offset, now, b"k", b"v", ()) for offset in range(2)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL_BIT if other.get("transactional", True) else 0,
            )
            written = TopicProduceData(topic, peer.topic_ids[topic], [PartitionProduceData(partition, batch)])
            return ProduceRequest(named, -1, TIMEOUT_MS, [written])  # type: ignore[arg-type]

        return asked

    def adding_offsets(self, group: str, *, epochs: int = 0) -> Asked:
        return lambda peer: AddOffsetsToTxnRequest(
            self.transactional_id, *self.id_and_epoch(peer, epochs), group
        )

    def committing_offsets(self, group: str, topic: str, partition: int = 0, *, epochs: int = 0) -> Asked:
        committed = TxnOffsetCommitRequestPartition(partition, 7, -1, "noted")
        topics = [TxnOffsetCommitRequestTopic(topic, [committed])]
        return lambda peer: TxnOffsetCommitRequest(
            self.transactional_id, group, *self.id_and_epoch(peer, epochs), topics=topics
        )

    def ending(self, commit: bool, *, epochs: int = 0) -> Asked:
        return lambda peer: EndTxnRequest(self.transactional_id, *self.id_and_epoch(peer, epochs), commit)

    def end(self, commit: bool, version: int) -> None:
        """End it, and wait until Kafka has written the markers."""
        self.twins.agree(self.ending(commit), version)
        described = DescribeTransactionsRequest([self.transactional_id])
        for peer in self.twins:
            until(lambda: self._is_complete(peer, described), f"{self.transactional_id} does not end")  # noqa: B023

    def _is_complete(self, peer: Peer, described: DescribeTransactionsRequest) -> bool:
        (told,) = peer.ask(described, 0).transaction_states
        return told.transaction_state in ("CompleteCommit", "CompleteAbort", "Empty")


@pytest.fixture
def producer(twins: Twins) -> Producer:
    producer = Producer(twins, f"producer-{next(_numbers)}")
    producer.start()
    return producer


def agree_on_state(twins: Twins, producer: Producer, topic: str) -> None:
    """What readers of both isolation levels and administrators see."""
    twins.agree(DescribeTransactionsRequest([producer.transactional_id]), 0)
    twins.agree(DescribeProducersRequest([TopicRequest(topic, [0, 1])]), 0)
    for isolation in (0, 1):
        for index in (0, 1):
            latest = ListOffsetsTopic(topic, [ListOffsetsPartition(index, timestamp=-1)])
            twins.agree(ListOffsetsRequest(-1, isolation, [latest]), 5)
    read = FetchPartition(0, partition_max_bytes=10**6)
    for peer in twins:
        fetched = FetchRequest(isolation_level=1, topics=[FetchTopic(topic=topic, partitions=[read])])
        (answer,) = peer.ask(fetched, 12).responses[0].partitions
        peer.notes["read"] = (
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            len(answer.records),
            [aborted.first_offset for aborted in answer.aborted_transactions or ()],
        )
    assert twins.ours.notes["read"] == twins.kafka.notes["read"]


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms"), [(None, 1), ("", 1), ("t", 0), ("t", -1), ("t", 10**9), (None, 0)]
)
def test_asking_for_an_id(twins: Twins, transactional_id: str | None, timeout_ms: int) -> None:
    twins.agree_in_all(InitProducerIdRequest(transactional_id, timeout_ms))


def test_asking_for_an_id_again(twins: Twins) -> None:
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
    # Said again it is the same; the opposite is too late.
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


def test_adding_wrongly(twins: Twins, producer: Producer, topic: str) -> None:
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


def test_writing_wrongly(twins: Twins, producer: Producer, topic: str) -> None:
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


def test_ending_and_committing_wrongly(twins: Twins, producer: Producer, topic: str) -> None:
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


def test_telling_of_transactions(twins: Twins) -> None:
    twins.agree(DescribeTransactionsRequest(["ghost-of-a-ghost", ""]), 0)
    twins.agree(DescribeTransactionsRequest([]), 0)
    asked = [TopicRequest("never", [0]), TopicRequest("a b", [0])]
    twins.agree(DescribeProducersRequest(asked), 0)
    twins.agree_in_all(ListTransactionsRequest(state_filters=["Unheard of"]))
    twins.agree_in_all(ListTransactionsRequest(transactional_id_pattern="["), since=2)
