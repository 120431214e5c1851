"""A partition with transactions: its markers, their listeners, and the parked fetches that they wake."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.clock import Clock
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.replication.waiting import ParkedFetch, Woken
from millrace.storage.append_origin import AppendOrigin
from millrace.timers import LoopTimers

from ..node import Node
from ..records import batch
from ..transactional import transactional_batch


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    node = Node(tmp_path / "data")
    cluster = node.open()
    cluster.create_topic("orders", 1)
    yield cluster.partitions.leader("orders", 0)
    node.kill()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def send(partition: Partition, *values: bytes, producer_id: int = 1, sequence: int = 0) -> int:
    records = transactional_batch(values, Clock().now_ms(), producer_id=producer_id, sequence=sequence)
    partition.append_as_leader(records, AppendOrigin.TRANSACTION)
    return len(records)


class Fetcher:
    """Waits for bytes at a partition."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, partition: Partition, *, reads_committed: bool, bytes_: int = 1
    ) -> None:
        self._loop = loop
        self._answered = False
        self.parked = ParkedFetch(
            Woken(loop, LoopTimers(loop)),
            [partition],
            bytes_,
            60_000,
            self._answer,
            reads_committed=reads_committed,
        )

    def _answer(self) -> None:
        self._answered = True

    @property
    def is_answered(self) -> bool:
        self._loop.run_until_complete(asyncio.sleep(0))
        return self._answered


def test_a_marker_moves_the_last_stable_offset(partition: Partition) -> None:
    send(partition, b"a", b"b")
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    assert partition.write_marker(1, 0, True, 0) == 2
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


def test_the_listener_is_notified_of_each_end(partition: Partition) -> None:
    ends: list[tuple[int, int, bool]] = []
    partition.on_marker = lambda *end: ends.append(end)
    send(partition, b"a")
    partition.write_marker(1, 0, True, 0)
    partition.write_marker(2, 7, False, 0)
    assert ends == [(1, 0, True), (2, 7, False)]


def test_the_listener_is_not_notified_of_a_rejected_end(partition: Partition) -> None:
    ends: list[tuple[int, int, bool]] = []
    partition.write_marker(1, 5, True, 3)
    partition.on_marker = lambda *end: ends.append(end)
    for epoch, coordinator_epoch, error in (
        (4, 3, Error.INVALID_PRODUCER_EPOCH),
        (5, 2, Error.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as refusal:
            partition.write_marker(1, epoch, True, coordinator_epoch)
        assert refusal.value.error is error
    assert ends == []


def test_a_transactions_records_wake_only_read_uncommitted_fetches(
    partition: Partition, loop: asyncio.AbstractEventLoop
) -> None:
    everything = Fetcher(loop, partition, reads_committed=False)
    committed = Fetcher(loop, partition, reads_committed=True)
    send(partition, b"a")
    assert everything.is_answered
    assert not committed.is_answered
    # Records after an open transaction are held back too.
    partition.append_as_leader(memoryview(batch(b"plain")))
    assert not committed.is_answered
    partition.write_marker(1, 0, True, 0)
    assert committed.is_answered


def test_records_outside_of_transactions_wake_every_fetch(
    partition: Partition, loop: asyncio.AbstractEventLoop
) -> None:
    committed = Fetcher(loop, partition, reads_committed=True)
    partition.append_as_leader(memoryview(batch(b"plain")))
    assert committed.is_answered


def test_a_marker_counts_as_bytes_for_read_uncommitted_fetches(
    partition: Partition, loop: asyncio.AbstractEventLoop
) -> None:
    size = send(partition, b"a")
    waiting = Fetcher(loop, partition, reads_committed=False, bytes_=size + 78)
    send(partition, b"b", sequence=1)
    assert not waiting.is_answered
    partition.write_marker(1, 0, True, 0)
    assert waiting.is_answered


def test_the_leader_epoch_never_falls_behind_the_log(tmp_path: Path) -> None:
    node = Node(tmp_path / "elsewhere")
    cluster = node.open()
    cluster.create_topic("orders", 1)
    partition = cluster.partitions.leader("orders", 0)
    assert partition.leader_epoch == 0
    partition.log.append(memoryview(batch(b"from a cluster with many elections")), leader_epoch=7)
    partition = node.reopen().partitions.leader("orders", 0)
    assert partition.leader_epoch == 7
    partition.append_as_leader(memoryview(batch(b"ours")))
    assert partition.log.epoch_end_offset(7) == (7, 2)
    node.kill()
