"""Leadership moves back and forth between two brokers, and nothing that was committed is lost."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.wire.records import iterate_batches, iterate_records

from ..records import batch
from ..two_nodes import TwoNodes


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[TwoNodes]:
    brokers = TwoNodes(tmp_path)
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
    appended = partition.append(memoryview(batch(b"one")))
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
            brokers.leading.partitions.leader("orders", index).append(memoryview(batch(value)))
            written[index].append(value)
        if chance.random() < 0.6:
            brokers.replicate()
            for index, added in written.items():
                acknowledged[index] += added
            continue
        # What only the old leader has is lost with it: nobody was told that it is safe.
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
