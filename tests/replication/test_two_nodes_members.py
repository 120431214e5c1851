"""Leadership moves back and forth between two brokers; members and offsets of transactions go with it.

A change that was not replicated in time is lost with its leader, and its client is told so. A change that
was acknowledged is there, whichever broker leads.
"""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.errors import Error
from millrace.groups.group import Group
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.heartbeat import HeartbeatRequest
from millrace.wire.messages.init_producer_id import InitProducerIdRequest
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from millrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..groups.members import subscription
from ..two_nodes import Answer, TwoNodes

GROUP = "readers"
ROUNDS = 20
PARTITIONS = 6
SEEDS = pytest.mark.parametrize("seed", range(4))


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoNodes]:
    monkeypatch.setattr("millrace.txn.markers.RETRY_MS", 1)
    properties = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
    }
    brokers = TwoNodes(tmp_path, properties)
    brokers.create_topic("orders", PARTITIONS)
    for coordinator in (brokers.leading.groups, brokers.leading.transactions):
        brokers.run(coordinator.runtime.ensure_topic())
    brokers.take_lead()
    brokers.settle()
    brokers.replicate()
    yield brokers
    brokers.close()


def group_of(brokers: TwoNodes) -> Any:
    group: Group | None = brokers.leading.groups.find(GROUP)
    assert group is not None
    return group


# Classic members


class ClassicMember:
    """A member that keeps its last acknowledged generation until the next one is acknowledged."""

    def __init__(self, brokers: TwoNodes) -> None:
        self._brokers = brokers
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.joined: Any = None

    def join(self) -> Answer:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
        )
        return self._brokers.send(request, 3)

    def place_in_rebalance(self) -> int:
        if not self.member_id:
            return 0
        return 1 if self.joined.leader == self.member_id else 2

    def sync(self, work: dict[str, bytes]) -> Answer:
        assignments = [
            SyncGroupRequestAssignment(member_id=to, assignment=given) for to, given in work.items()
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.joined.generation_id,
            member_id=self.joined.member_id,
            assignments=assignments if self.joined.leader == self.joined.member_id else [],
        )
        return self._brokers.send(request, 3)

    def heartbeat(self) -> Error:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        return Error(self._brokers.send(request, 3).response.error_code)


def rebalance(brokers: TwoNodes, members: list[ClassicMember], number: int, *, fails_over: bool) -> bool:
    """Bring members to their next generation; returns whether that was acknowledged."""
    # A new member or the leader begins a rebalance; the others follow.
    joins = {member: member.join() for member in sorted(members, key=ClassicMember.place_in_rebalance)}
    brokers.wait_for(*joins.values())
    for member, answer in joins.items():
        assert answer.response.error_code == Error.NONE
        member.joined = answer.response
    work = {member.joined.member_id: b"%d of %d" % (place, number) for place, member in enumerate(members)}
    syncs = {member: member.sync(work) for member in members}
    assert not any(answer.arrived for answer in syncs.values()), "the assignment is not replicated yet"
    if fails_over:
        brokers.fail_over()
        assert {answer.response.error_code for answer in syncs.values()} == {Error.NOT_COORDINATOR}
        return False
    brokers.wait_for(*syncs.values())
    for member, answer in syncs.items():
        assert answer.response.error_code == Error.NONE
        member.member_id, member.generation = member.joined.member_id, member.joined.generation_id
        member.assignment = answer.response.assignment
    return True


@SEEDS
def test_classic_members_keep_their_last_acknowledged_generation(brokers: TwoNodes, seed: int) -> None:
    chance = random.Random(seed)
    members = [ClassicMember(brokers)]
    rebalance(brokers, members, 0, fails_over=False)
    for number in range(1, ROUNDS):
        if chance.random() < 0.3 and len(members) < 5:
            # A member that has not synced is lost with its leader, and comes back under another id.
            grown = [*members, ClassicMember(brokers)]
            if rebalance(brokers, grown, number, fails_over=chance.random() < 0.5):
                members = grown
        else:
            rebalance(brokers, members, number, fails_over=chance.random() < 0.5)
        if chance.random() < 0.5:
            brokers.replicate()
            brokers.fail_over()
        brokers.replicate()
        assert [member.heartbeat() for member in members] == [Error.NONE] * len(members)
        known = group_of(brokers).members
        assert {member.member_id: member.assignment for member in members} == {
            member_id: member.assignment for member_id, member in known.items()
        }


# Members of the consumer protocol


class ConsumerMember:
    """A member that acts on acknowledged heartbeats only, and tells everything again after a failure."""

    def __init__(self, brokers: TwoNodes) -> None:
        self._brokers = brokers
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()

    def heartbeat(self) -> Answer:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[TopicPartitions(topic_id, indexes) for topic_id, indexes in by_topic.items()],
        )
        return self._brokers.send(request, 1)

    def receive(self, answer: Answer) -> None:
        response = answer.response
        assert Error(response.error_code) is Error.NONE
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {
                (topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            }


@SEEDS
def test_consumers_keep_their_acknowledged_epochs_and_partitions(brokers: TwoNodes, seed: int) -> None:
    chance = random.Random(seed)
    members = [ConsumerMember(brokers)]
    for _ in range(3 * ROUNDS):
        if chance.random() < 0.1 and len(members) < 4:
            members.append(ConsumerMember(brokers))
        member = chance.choice(members)
        answer = member.heartbeat()
        if chance.random() < 0.6:
            brokers.wait_for(answer)
        if answer.arrived:
            member.receive(answer)
        else:
            brokers.fail_over()
            assert Error(answer.response.error_code) is Error.NOT_COORDINATOR
        if chance.random() < 0.2:
            brokers.fail_over()
        brokers.replicate()
        owned = [partition for each in members for partition in each.owned]
        assert len(owned) == len(set(owned)), "two members own a partition"
    for _ in range(2 * len(members) + 2):
        for member in members:
            answer = member.heartbeat()
            brokers.wait_for(answer)
            member.receive(answer)
    assert sum(len(member.owned) for member in members) == PARTITIONS
    assert {member.member_id for member in members if member.epoch} == set(group_of(brokers).members)


# Offsets of transactions


class Producer:
    """A transactional producer that commits offsets of the group."""

    def __init__(self, brokers: TwoNodes) -> None:
        self._brokers = brokers
        self._identity = ProducerIdentity(-1, -1)

    def init(self) -> None:
        """Take the id over, which aborts what was left open."""
        for _ in range(1000):
            request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
            answer = self._brokers.send(request, 5)
            self._brokers.wait_for(answer)
            if answer.response.error_code == Error.NONE:
                self._identity = ProducerIdentity(answer.response.producer_id, answer.response.producer_epoch)
                return
            self._brokers.replicate()
            self._brokers.pass_time()
        raise AssertionError("the last transaction is never completed")

    def commit(self, offset: int) -> Answer:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=GROUP,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )
        return self._brokers.send(request, 5)

    def end(self, *, committed: bool) -> Answer:
        request = EndTxnRequest(
            transactional_id="id",
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=committed,
        )
        return self._brokers.send(request, 5)


def stable_offset(brokers: TwoNodes) -> int:
    """The group's offset once no transaction holds it back."""
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True
    )
    for _ in range(1000):
        answer = brokers.send(request, 8)
        brokers.wait_for(answer)
        (partition,) = answer.response.groups[0].topics[0].partitions
        if partition.error_code == Error.NONE:
            return int(partition.committed_offset)
        assert partition.error_code == Error.UNSTABLE_OFFSET_COMMIT
        brokers.replicate()
        brokers.pass_time()
    raise AssertionError("a transaction holds the offset back forever")


@SEEDS
def test_offsets_of_a_transaction_count_if_and_only_if_its_commit_was_acknowledged(
    brokers: TwoNodes, seed: int
) -> None:
    chance = random.Random(seed)
    producer = Producer(brokers)
    expected = -1
    for offset in range(ROUNDS):
        producer.init()
        answer = producer.commit(offset)
        if chance.random() < 0.2:
            # The offset is lost, or the transaction that it belongs to.
            brokers.fail_over()
            continue
        brokers.wait_for(answer)
        assert answer.response.topics[0].partitions[0].error_code == Error.NONE
        committed = chance.random() < 0.7
        answer = producer.end(committed=committed)
        if chance.random() < 0.3:
            # So is the decision.
            brokers.fail_over()
            assert answer.response.error_code == Error.NOT_COORDINATOR
            continue
        brokers.wait_for(answer)
        assert answer.response.error_code == Error.NONE
        if committed:
            expected = offset
        if chance.random() < 0.5:
            # Markers may be missing, which the next coordinator writes.
            brokers.fail_over()
    producer.init()
    assert stable_offset(brokers) == expected
    brokers.replicate()
    brokers.fail_over()
    brokers.replicate()
    assert stable_offset(brokers) == expected
