"""A transactional producer of both brokers, by hand: every step can be made at the wrong time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from millrace.errors import Error
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
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millrace.wire.records import TRANSACTIONAL_BIT, Record, build_batch

from ...waiting import until
from .twins import Asked, Peer, Twins, comparable

TIMEOUT_MS = 60_000
# From this version of EndTxn on, the response has the epoch of the next transaction (KIP-890).
NEXT_EPOCH_FROM = 5


@dataclass
class Producer:
    """A transactional producer of both brokers; each has its own id and epoch for it."""

    twins: Twins
    transactional_id: str

    def start(self) -> None:
        """Get an id, or the next epoch; Kafka makes a producer wait while it aborts its open transaction."""
        asked = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        for peer in self.twins:
            until(partial(self._started, peer, asked))
        theirs, ours = (peer.notes[self.transactional_id] for peer in self.twins)
        assert comparable(ours) == comparable(theirs)

    def _started(self, peer: Peer, asked: InitProducerIdRequest) -> bool:
        peer.notes[self.transactional_id] = answer = peer.ask(asked, 5)
        return answer.error_code != Error.CONCURRENT_TRANSACTIONS

    @property
    def epoch(self) -> int:
        return self.id_and_epoch(self.twins.ours)[1]

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
        self, topic: str, sequence: int, *, epochs: int = 0, partition: int = 0, **other: Any
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
            return ProduceRequest(named, -1, TIMEOUT_MS, [written])

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
        identities = {peer: peer.notes[self.transactional_id] for peer in self.twins}
        answer = self.twins.agree(self.ending(commit), version, self.transactional_id)
        if answer.error_code or version < NEXT_EPOCH_FROM:
            for peer, identity in identities.items():
                peer.notes[self.transactional_id] = identity
        if answer.error_code:
            return
        for peer in self.twins:
            until(partial(self._is_complete, peer))

    def _is_complete(self, peer: Peer) -> bool:
        (told,) = peer.ask(DescribeTransactionsRequest([self.transactional_id]), 0).transaction_states
        return told.transaction_state in ("CompleteCommit", "CompleteAbort")


def agree_on_state(twins: Twins, producer: Producer, topic: str) -> None:
    """The state as readers of both isolation levels and administrators see it."""
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
