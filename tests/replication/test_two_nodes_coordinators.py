"""Leadership moves back and forth between two brokers; committed offsets and transactions go with it."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import Groups
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset
from millrace.storage.append_origin import AppendOrigin
from millrace.txn.coordinator import Transactions
from millrace.txn.transaction_state import EPOCH_PER_TRANSACTION, ProducerIdentity

from ..transactional import read_committed, transactional_batch
from ..two_nodes import TwoNodes

GROUPS = [f"group-{number}" for number in range(5)]
ROUNDS = 25


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoNodes]:
    monkeypatch.setattr("millrace.txn.markers.RETRY_MS", 1)
    properties = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    brokers = TwoNodes(tmp_path, properties)
    brokers.create_topic("orders")
    for coordinator in (brokers.leading.groups, brokers.leading.transactions):
        brokers.run(coordinator.runtime.ensure_topic())
    brokers.take_lead()
    brokers.settle()
    brokers.replicate()
    yield brokers
    brokers.close()


def commit(groups: Groups, group_id: str, offset: int) -> object:
    """Commit an offset; the response, or the promise of one."""
    committed = CommittedOffset(offset, -1, "", 0)
    groups.commit(group_id, Commit("", None, -1, 9), [(("orders", 0), committed)])
    return groups.settled(group_id, "committed")


def offsets_of(groups: Groups) -> dict[str, int]:
    found = {}
    for group_id in GROUPS:
        kept = groups.runtime.shard_of(group_id).offsets.get(group_id, "orders", 0)
        if kept is not None:
            found[group_id] = kept.offset
    return found


@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_offset_is_lost_while_leadership_moves(brokers: TwoNodes, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        written: dict[str, int] = {}
        responses = []
        for _ in range(chance.randrange(1, 4)):
            group_id = chance.choice(GROUPS)
            responses.append(commit(brokers.leading.groups, group_id, number))
            written[group_id] = number
        assert not any(isinstance(response, Deferred) and response.resolved for response in responses)
        if chance.random() < 0.6:
            brokers.replicate()
            assert {_outcome(response) for response in responses} == {"committed"}
            acknowledged |= written
        else:
            brokers.fail_over()
            assert {_outcome(response) for response in responses} == {Error.NOT_COORDINATOR}
            brokers.replicate()
        assert offsets_of(brokers.leading.groups) == acknowledged


def _outcome(response: object) -> object:
    assert isinstance(response, Deferred) and response.resolved
    try:
        return response.result()
    except KafkaError as error:
        return error.error


class Producer:
    """A transactional producer that finds its coordinator again after each change of the leader."""

    def __init__(self, brokers: TwoNodes) -> None:
        self._brokers = brokers
        self.identity = ProducerIdentity(-1, -1)

    @property
    def _transactions(self) -> Transactions:
        return self._brokers.leading.transactions

    def init(self) -> None:
        """Take the id over, which aborts what was left open."""
        for _ in range(1000):
            with suppress(KafkaError):
                self.identity = self._transactions.init_producer_id("id", 60_000)
                self._brokers.replicate()
                return
            self._pass_time()
        raise AssertionError("the last transaction is never completed")

    def write(self, value: bytes) -> None:
        self._transactions.add_partitions("id", self.identity, [("orders", 0)], EPOCH_PER_TRANSACTION)
        self._brokers.replicate()
        partition = self._brokers.leading.partitions.leader("orders", 0)
        now_ms = self._brokers.leading.clock.now_ms()
        producer_id, epoch = self.identity
        batch = transactional_batch([value], now_ms, producer_id=producer_id, epoch=epoch)
        partition.append_as_leader(batch, AppendOrigin.TRANSACTION)

    def end(self, *, committed: bool) -> object:
        identity = self._transactions.end(
            "id", self.identity, committed=committed, client_version=EPOCH_PER_TRANSACTION
        )
        return self._transactions.settled("id", identity)

    def _pass_time(self) -> None:
        self._brokers.replicate()
        self._brokers.pass_time()


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_is_committed_if_and_only_if_its_producer_was_told_so(
    brokers: TwoNodes, seed: int
) -> None:
    chance = random.Random(seed)
    producer = Producer(brokers)
    expected: list[bytes] = []
    for number in range(ROUNDS):
        producer.init()
        value = b"value %d" % number
        producer.write(value)
        if chance.random() < 0.3:
            # The record is lost, and the transaction still open.
            brokers.fail_over()
            continue
        brokers.replicate()
        committed = chance.random() < 0.7
        response = producer.end(committed=committed)
        if chance.random() < 0.3:
            # So is the decision.
            brokers.fail_over()
            assert _outcome(response) is Error.NOT_COORDINATOR
            continue
        brokers.replicate()
        assert isinstance(_outcome(response), ProducerIdentity)
        expected += [value] if committed else []
        if chance.random() < 0.5:
            # Markers may be missing, which the next coordinator writes.
            brokers.fail_over()
    producer.init()
    brokers.replicate()
    leader = brokers.leading.partitions.leader("orders", 0)
    follower = brokers.following.partitions.find("orders", 0)
    assert follower is not None
    assert leader.last_stable_offset == leader.log.log_end_offset
    assert [value for _, value in read_committed(leader.log)] == expected
    assert [value for _, value in read_committed(follower.log)] == expected
