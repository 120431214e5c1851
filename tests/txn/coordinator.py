"""A transaction coordinator on real logs, without a network: time stands still, and it can be killed."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.deferred import Deferred
from millrace.disk import Bytes, Disk
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.testing.timers import ManualTimers
from millrace.txn.coordinator import Transactions
from millrace.txn.markers import RETRY_MS
from millrace.txn.transaction_state import (
    EPOCH_PER_TRANSACTION,
    LAST_CLIENT_EPOCH,
    OLD_PROTOCOL,
    ProducerIdentity,
    State,
    Transaction,
)
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    build_batch,
    iterate_batches,
    iterate_records,
)

from ..node import Node, OpenNode, finish

TIMEOUT_MS = 60_000
PROPERTIES = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}


def error_of(call: Callable[..., object], *args: object, **kwargs: object) -> Error:
    """The error that a call, or the deferred that it returns, fails with."""
    with pytest.raises(KafkaError) as raised:
        result = call(*args, **kwargs)
        if isinstance(result, Deferred):
            result.result()
    return raised.value.error


class Killed(BaseException):
    """The process ended here."""


class MortalDisk(FaultyDisk):
    """A disk under a process that dies, or one that fails once, after a number of writes."""

    __slots__ = ("_until_death", "_until_failure")

    def __init__(self) -> None:
        super().__init__()
        self._until_death: int | None = None
        self._until_failure: int | None = None

    def die_after(self, writes: int | None) -> None:
        self._until_death = writes

    def fail_after(self, writes: int) -> None:
        self._until_failure = writes

    def write(self, fd: int, buffers: Sequence[Bytes]) -> None:
        if self._until_death == 0:
            raise Killed
        if self._until_death is not None:
            self._until_death -= 1
        if self._until_failure == 0:
            self.fail_next_write()
        if self._until_failure is not None:
            self._until_failure -= 1
        super().write(fd, buffers)


class Coordinator:
    """The coordinator and the partitions it ends transactions in."""

    def __init__(
        self, path: Path, disk: Disk | None = None, properties: dict[str, str] | None = None
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.node = Node(path, disk=disk, clock=self.clock, timers=self.timers)
        self._properties = PROPERTIES | (properties or {})
        self.cluster: OpenNode
        self.transactions: Transactions
        self.open()

    def open(self) -> None:
        self.timers.cancel_all()
        self.cluster = self.node.open(self._properties)
        self.transactions = self.cluster.node.transactions
        finish(self.transactions.runtime.ensure_topic())
        asyncio.run(self.transactions.runtime.load())
        self.transactions.start()

    def restart(self) -> None:
        """As after kill -9."""
        self.node.kill()
        self.open()
        # A marker for a log that was not open yet was put off.
        self.timers.advance(RETRY_MS)

    def create_topic(self, name: str, partitions: int = 2) -> None:
        self.cluster.create_topic(name, partitions)

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.cluster.partitions.leader(topic, index)

    # What producers do

    def init(
        self,
        transactional_id: str = "id",
        expected: ProducerIdentity | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerIdentity:
        return self.transactions.init_producer_id(transactional_id, timeout_ms, expected)

    def use_up_epochs(self) -> ProducerIdentity:
        """Let the producer of "id" have come to the last epoch that clients get."""
        self.init()
        worn = replace(self.get(), producer_epoch=LAST_CLIENT_EPOCH)
        runtime = self.transactions.runtime
        runtime.append(runtime.partition_of("id"), [worn.record()])
        return worn.producer

    def add(
        self, producer: ProducerIdentity, *partitions: tuple[str, int], transactional_id: str = "id"
    ) -> None:
        self.transactions.add_partitions(transactional_id, producer, partitions)

    def produce(
        self,
        producer: ProducerIdentity,
        topic: str,
        *values: bytes,
        index: int = 0,
        sequence: int = 0,
        joins: bool = False,
        transactional_id: str = "id",
    ) -> None:
        self.transactions.verify(transactional_id, *producer, topic, index, joins=joins).result()
        batch = build_batch(
            [Record(number, self.clock.now_ms(), None, value) for number, value in enumerate(values)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_BIT,
        )
        partition = self.partition(topic, index)
        partition.log.append(memoryview(batch), partition.leader_epoch, AppendOrigin.TRANSACTION)

    def end(
        self,
        producer: ProducerIdentity,
        *,
        committed: bool = True,
        new: bool = False,
        transactional_id: str = "id",
    ) -> ProducerIdentity:
        return self.transactions.end(
            transactional_id,
            producer,
            committed=committed,
            client_version=EPOCH_PER_TRANSACTION if new else OLD_PROTOCOL,
        )

    # What there is to see

    def get(self, transactional_id: str = "id") -> Transaction:
        found = self.transactions.find(transactional_id)
        assert found is not None
        return found

    def state(self, transactional_id: str = "id") -> State:
        return self.get(transactional_id).state

    def markers(self, topic: str, index: int = 0) -> list[tuple[int, int, bool]]:
        """Producer id, epoch and outcome of every marker in a partition."""
        found = []
        for header, batch in self._batches(topic, index):
            if header.is_control:
                marker = read_end_marker(batch)
                assert marker is not None
                found.append((header.producer_id, header.producer_epoch, marker.committed))
        return found

    def committed(self, topic: str, index: int = 0) -> list[bytes | None]:
        """The values of committed transactions, in the order of their commits."""
        open_values: dict[int, list[bytes | None]] = {}
        values: list[bytes | None] = []
        for header, batch in self._batches(topic, index):
            if header.is_control:
                marker = read_end_marker(batch)
                ended = open_values.pop(header.producer_id, [])
                values += ended if marker is not None and marker.committed else []
            else:
                open_values.setdefault(header.producer_id, []).extend(
                    record.value for record in iterate_records(batch)
                )
        return values

    def is_open(self, topic: str, index: int = 0) -> bool:
        """Whether readers of committed records have to wait for a transaction."""
        log = self.partition(topic, index).log
        return log.last_stable_offset < log.log_end_offset

    def _batches(self, topic: str, index: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        log = self.partition(topic, index).log
        offset = log.log_start_offset
        while (piece := log.read(offset, 1 << 20, min_one_batch=True)) is not None:
            for header, batch in iterate_batches(piece.read()):
                yield header, batch
                offset = header.next_offset
