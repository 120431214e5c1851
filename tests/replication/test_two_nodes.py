"""Leadership moves back and forth between two brokers, and nothing that was committed is lost."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.txn.transaction_state import OLD_PROTOCOL, State
from millrace.wire.records import (
    TRANSACTIONAL_BIT,
    Record,
    build_batch,
    iterate_batches,
    iterate_records,
)

from ..records import batch
from ..two_nodes import TwoNodes

SMALL = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
BY_NO_MEMBER = Commit("", None, -1)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[TwoNodes]:
    brokers = TwoNodes(tmp_path, SMALL)
    yield brokers
    brokers.close()


def values(partition: Partition) -> list[bytes | None]:
    """The values of every record in a log."""
    found: list[bytes | None] = []
    offset = partition.log.log_start_offset
    while (piece := partition.log.read(offset, 1 << 20, min_one_batch=True)) is not None:
        for header, content in iterate_batches(partition.log.copy(piece)):
            found += [record.value for record in iterate_records(content, header)]
            offset = header.next_offset
    return found


def test_one_broker_leads_and_the_other_refuses(brokers: TwoNodes) -> None:
    brokers.create_topic("orders")
    assert brokers.leading.partitions.leader("orders", 0).leader == 1
    with pytest.raises(KafkaError) as refused:
        brokers.following.partitions.leader("orders", 0)
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_record_is_committed_when_the_follower_has_it(brokers: TwoNodes) -> None:
    brokers.create_topic("orders")
    partition = brokers.leading.partitions.leader("orders", 0)
    appended = partition.append_as_leader(memoryview(batch(b"one")))
    committed = partition.committed(appended.last_offset + 1)
    assert partition.high_watermark == 0
    assert not committed.resolved
    brokers.replicate()
    assert partition.high_watermark == 1
    assert committed.resolved


@pytest.mark.parametrize("seed", range(8))
def test_no_committed_record_is_lost_while_leadership_moves(brokers: TwoNodes, seed: int) -> None:
    chance = random.Random(seed)
    brokers.create_topic("orders", 2)
    acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
    number = 0
    for _ in range(30):
        written: dict[int, list[bytes]] = {0: [], 1: []}
        for _ in range(chance.randrange(5)):
            index, number = chance.randrange(2), number + 1
            value = b"value %d" % number
            brokers.leading.partitions.leader("orders", index).append_as_leader(memoryview(batch(value)))
            written[index].append(value)
        if chance.random() < 0.6:
            brokers.replicate()
            for index, added in written.items():
                acknowledged[index] += added
            continue
        # Records that only the old leader has are lost with it: they were never acknowledged.
        brokers.fail_over()
    brokers.replicate()
    for index, expected in acknowledged.items():
        leader = brokers.leading.partitions.leader("orders", index)
        follower = brokers.following.partitions.find("orders", index)
        assert follower is not None
        found = values(leader)
        assert [value for value in found if value in set(expected)] == expected
        assert values(follower) == found
        assert follower.high_watermark == leader.high_watermark == leader.log.log_end_offset


# Coordinators


@pytest.mark.parametrize("seed", range(4))
def test_no_acknowledged_offset_of_a_group_is_lost_while_leadership_moves(
    brokers: TwoNodes, seed: int
) -> None:
    chance = random.Random(seed)
    brokers.create_topic("orders")
    acknowledged: dict[str, int] = {}
    prepare_coordinators(brokers)
    for number in range(40):
        group_id, groups = f"group {chance.randrange(5)}", brokers.leading.groups
        index = groups.runtime.partition_of(group_id)
        with pytest.raises(KafkaError) as refused:
            brokers.following.groups.runtime.shard(index)
        assert refused.value.error is Error.NOT_COORDINATOR
        offset = CommittedOffset(offset=number, metadata="")
        groups.commit(group_id, BY_NO_MEMBER, [(("orders", 0), offset)])
        answer = groups.runtime.committed(index)
        assert not answer.resolved
        if chance.random() < 0.7:
            brokers.replicate()
            assert answer.resolved
            acknowledged[group_id] = number
        else:
            brokers.fail_over()
            assert answer.resolved
            brokers.replicate()
        for known, expected in acknowledged.items():
            found = brokers.leading.groups.runtime.shard_of(known).offsets.get(known, "orders", 0)
            assert found is not None
            assert found.offset >= expected


def test_transactions_go_on_where_they_were_after_leadership_moved(brokers: TwoNodes) -> None:
    brokers.create_topic("orders")
    prepare_coordinators(brokers)
    for number in range(6):
        transactions = brokers.leading.transactions
        producer = transactions.init_producer_id("id", 60_000)
        transactions.add_partitions("id", producer, [("orders", 0)])
        partition = brokers.leading.partitions.leader("orders", 0)
        partition.append_as_leader(
            memoryview(
                build_batch(
                    [Record(0, 0, None, b"value %d" % number)],
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=0,
                    attributes=TRANSACTIONAL_BIT,
                )
            ),
            AppendOrigin.TRANSACTION,
        )
        brokers.replicate()
        if number % 2:
            # The coordinator and the data move while the transaction is open.
            brokers.fail_over()
            transactions = brokers.leading.transactions
            brokers.replicate()
        transactions.end("id", producer, committed=number % 3 != 2, client_version=OLD_PROTOCOL)
        # First the decision is committed, then the markers, then the completion.
        for _ in range(3):
            brokers.replicate()
            brokers.settle()
        settled = brokers.leading.transactions.find("id")
        assert settled is not None
        assert settled.state is (State.COMPLETE_ABORT if number % 3 == 2 else State.COMPLETE_COMMIT)
        leader = brokers.leading.partitions.leader("orders", 0)
        assert leader.last_stable_offset == leader.high_watermark == leader.log.log_end_offset
    assert len(values(brokers.leading.partitions.leader("orders", 0))) == 12


def prepare_coordinators(brokers: TwoNodes) -> None:
    """Create the internal topics, with every partition led by the present leader."""
    brokers.run(brokers.leading.groups.runtime.ensure_topic())
    brokers.run(brokers.leading.transactions.runtime.ensure_topic())
    brokers.take_lead()
    brokers.settle()
    brokers.replicate()
