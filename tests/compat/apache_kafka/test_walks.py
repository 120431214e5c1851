"""Random walks through the states of fetch sessions and transactions; a seed repeats a walk."""

import random
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.records import Record, build_batch

from .producers import Producer, agree_on_state
from .twins import Peer, Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

SESSION_VERSIONS = (7, 9, 11, 12, 13, 16, 18)
FULL, CLOSING = 0, -1


class Session:
    """A fetch session with both brokers, with a client's possible mistakes."""

    def __init__(self, twins: Twins, seed: int) -> None:
        self.twins = twins
        self.random = random.Random(seed)
        self.version = self.random.choice(SESSION_VERSIONS)
        topics = [f"walk-{seed}-{letter}" for letter in "abc"]
        for topic in topics:
            twins.create_topic(topic, 2, retention_ms="-1")
        self.places = [(topic, index) for topic in topics for index in (0, 1)]
        self.epoch = FULL

    def step(self) -> None:
        for place in self.places:
            if self.random.random() < 0.25:
                self.produce(*place)
        asked = self.request()
        answers = [peer.ask(asked(peer), self.version) for peer in self.twins]
        theirs, ours = (
            told(peer, answer, self.version) for peer, answer in zip(self.twins, answers, strict=True)
        )
        assert ours == theirs, asked(self.twins.ours)
        if self.epoch == FULL:
            for peer, answer in zip(self.twins, answers, strict=True):
                peer.notes["session"] = answer.session_id
        if answers[0].error_code or self.epoch == CLOSING:
            self.epoch = FULL
        else:
            # The next epoch; sometimes an epoch is skipped, a new session begins, or this one ends.
            following = self.epoch + 1
            self.epoch = self.random.choices((following, following + 1, FULL, CLOSING), (86, 5, 5, 4))[0]

    def produce(self, topic: str, index: int) -> None:
        values = [b"v" * self.random.choice((1, 100)) for _ in range(self.random.randint(1, 3))]
        batch = build_batch(Record(n, 1_700_000_000_000, b"k", value, ()) for n, value in enumerate(values))
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])]
        self.twins.agree(ProduceRequest(None, -1, 10_000, data), 9)

    def request(self) -> Callable[[Peer], FetchRequest]:
        share = 0.7 if self.epoch == FULL else 0.3
        chosen = [place for place in self.places if self.random.random() < share]
        partitions = [
            (
                topic,
                FetchPartition(
                    index, fetch_offset=self.random.choice((0, 1, 2, 5, 999)), partition_max_bytes=10**6
                ),
            )
            for topic, index in chosen
        ]
        forgotten = [place for place in self.places if self.epoch > FULL and self.random.random() < 0.1]

        def asked(peer: Peer) -> FetchRequest:
            return FetchRequest(
                session_id=peer.notes["session"] if self.epoch != FULL else 0,
                session_epoch=self.epoch,
                topics=[
                    FetchTopic(topic, peer.topic_ids[topic], [partition for _, partition in group])
                    for topic, group in groupby(partitions, key=lambda entry: entry[0])
                ],
                forgotten_topics_data=[
                    ForgottenTopic(topic, peer.topic_ids[topic], [index for _, index in group])
                    for topic, group in groupby(forgotten, key=lambda entry: entry[0])
                ],
            )

        return asked


def told(peer: Peer, answer: Any, version: int) -> object:
    """The partitions of a fetch response, which may name a topic more than once."""
    names = {topic_id: topic for topic, topic_id in peer.topic_ids.items()}
    places = {
        (names[topic.topic_id] if version >= 13 else topic.topic, partition.partition_index): (
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
            bytes(partition.records or b""),
        )
        for topic in answer.responses
        for partition in topic.partitions
    }
    return answer.error_code, bool(answer.session_id), places


@pytest.mark.parametrize("seed", range(16))
def test_fetch_sessions(twins: Twins, seed: int) -> None:
    session = Session(twins, seed)
    for _ in range(25):
        session.step()


class Transactions:
    """A producer that does anything at any time; the producer it has fenced sends requests too."""

    def __init__(self, twins: Twins, name: str, *, epoch_per_transaction: bool) -> None:
        self.twins = twins
        self.random = random.Random(name)
        self.topic, self.group = f"{name}-topic", f"{name}-group"
        self.epoch_per_transaction = epoch_per_transaction
        twins.create_topic(self.topic, 2)
        self.producer = Producer(twins, name)
        self.producer.start()
        self.sequences = [0, 0]

    def step(self) -> None:
        writes = [self.write] * 3
        ends = [self.end] * 2
        self.random.choice(
            [self.start, self.add, *writes, self.add_offsets, self.commit_offsets, *ends, self.look]
        )()

    def start(self) -> None:
        self.producer.start()
        self.sequences = [0, 0]

    def add(self) -> None:
        added = {self.topic: [self.random.randint(0, 1)]}
        self.twins.agree(self.producer.adding(added, epochs=self.whose()), 3)

    def write(self) -> None:
        index, epochs = self.random.randint(0, 1), self.whose()
        sequence = max(0, self.sequences[index] + self.random.choices((0, 3, -1), (80, 10, 10))[0])
        writing = self.producer.writing(self.topic, sequence, partition=index, epochs=epochs)
        answer = self.twins.agree(writing, 12 if self.epoch_per_transaction else 11)
        if answer.responses[0].partition_responses[0].error_code == 0 and epochs == 0:
            self.sequences[index] = max(self.sequences[index], sequence + 2)

    def add_offsets(self) -> None:
        self.twins.agree(self.producer.adding_offsets(self.group, epochs=self.whose()), 4)

    def commit_offsets(self) -> None:
        index = self.random.randint(0, 1)
        asked = self.producer.committing_offsets(self.group, self.topic, index, epochs=self.whose())
        self.twins.agree(asked, 5 if self.epoch_per_transaction else 4)

    def end(self) -> None:
        commit = self.random.random() < 0.5
        version = 5 if self.epoch_per_transaction else 4
        if epochs := self.whose():
            self.twins.agree(self.producer.ending(commit, epochs=epochs), version)
            return
        self.producer.end(commit, version)
        if self.epoch_per_transaction:
            self.sequences = [0, 0]

    def look(self) -> None:
        agree_on_state(self.twins, self.producer, self.topic)
        fetched = [OffsetFetchRequestTopic(self.topic, [0, 1])]
        for stable in (False, True):
            self.twins.agree(OffsetFetchRequest(self.group, fetched, require_stable=stable), 7)

    def whose(self) -> int:
        """The epoch to send, derived from the current one."""
        return -1 if self.producer.epoch and self.random.random() < 0.15 else 0


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("epoch_per_transaction", [False, True], ids=["old", "new"])
def test_transactions(twins: Twins, seed: int, epoch_per_transaction: bool) -> None:
    name = f"walk-{seed}-{epoch_per_transaction}"
    walk = Transactions(twins, name, epoch_per_transaction=epoch_per_transaction)
    for _ in range(60):
        walk.step()
