"""Decide, append, replay: how a coordinator keeps its state in an internal topic.

A decision reads the state and returns records and a response. The records are appended to the internal
topic as one batch and then replayed, and only replaying changes the state; starting is replaying the same
records from the log. Everything happens on the broker loop, and an append is a write to the page cache, so
a decision, its append and its replay are one step that nothing else can come between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

from millrace.clock import Clock
from millrace.coordinator.loading import Loader
from millrace.coordinator.records import EncodedRecord, Origin, Schemas, StateRecord, encode_record
from millrace.coordinator.shard import Shard
from millrace.errors import Error, KafkaError
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.wire.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    Record,
    build_batch,
    iterate_batches,
)

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
T = TypeVar("T")

# Loading takes turns with serving: this much of the log is replayed in one go.
LOAD_BYTES = 64 * 1024
LOAD_RECORDS = 1000

# What a failed append means to the client of a coordinator, as Kafka has it.
_APPEND_ERRORS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


class Runtime(Generic[S]):
    """The shards of one internal topic. Owned by the broker loop; not thread-safe.

    A partition that cannot be opened or replayed has no shard: only its keys are unavailable.
    """

    def __init__(
        self,
        topic: str,
        schemas: Schemas,
        new_shard: Callable[[int], S],
        *,
        partition_count: Callable[[str], int | None],
        partitions: HostedPartitions,
        create_topic: Callable[[], Awaitable[object]],
        clock: Clock,
        superseding: Collection[int] = (),
    ) -> None:
        """`partition_count` tells the number of a topic's partitions by the cluster's metadata.

        `superseding`: record types whose values leave nothing of their key's older ones.
        """
        self.topic = topic
        self._partition_count = partition_count
        self._schemas = schemas
        self._superseding = superseding
        self._new_shard = new_shard
        self._partitions = partitions
        self._create_topic = create_topic
        self._clock = clock
        self._shards: dict[int, S] = {}
        self._loading: set[int] = set()

    # Finding

    async def ensure_topic(self) -> None:
        """Create the internal topic, unless it exists."""
        if self._partition_count(self.topic) is None:
            await self._create_topic()

    def partition_of(self, key: str) -> int:
        """The partition that a key lives in, as every Kafka client and tool computes it."""
        count = self._partition_count(self.topic)
        if not count:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, f"The topic {self.topic} does not exist yet.")
        return positive_hash(key) % count

    def shard_of(self, key: str) -> S:
        return self.shard(self.partition_of(key))

    def shard(self, index: int) -> S:
        """The state of a partition; raises KafkaError while it is loading, and if it is not led here."""
        found = self._shards.get(index)
        if found is not None:
            return found
        if index in self._loading:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        reason = self._partitions.offline_reason(self.topic, index)
        raise KafkaError(Error.NOT_COORDINATOR, reason or f"{self.topic}-{index} is not led by this broker")

    # Leading

    def elected(self, index: int, leader_epoch: int) -> bool:
        """Take up the state of a partition that this broker leads now.

        An empty partition has its shard at once, any other one after `load`. Returns whether `load` must be
        called: it is not, if it is running for another partition.
        """
        if index in self._shards or index in self._loading:
            return False
        partition = self._partitions.leader(self.topic, index)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            self._serve(partition, self._new_shard(index))
            return False
        self._loading.add(index)
        return len(self._loading) == 1

    def resigned(self, index: int) -> None:
        """This broker no longer leads a partition: its shard goes."""
        self._loading.discard(index)
        self._shards.pop(index, None)

    def _serve(self, partition: Partition, shard: S) -> None:
        self._shards[partition.index] = shard
        partition.on_marker = shard.end_transaction
        shard.loaded()

    @property
    def shards(self) -> Iterable[S]:
        """Every shard that is loaded."""
        return self._shards.values()

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # Writing

    def write(self, key: str, decide: Callable[[S], tuple[list[StateRecord], T]]) -> T:
        """Decide on the key's shard, make the decision last, and return its response."""
        index = self.partition_of(key)
        shard = self.shard(index)
        records, response = decide(shard)
        if records:
            self.append(index, records)
        return response

    def append(
        self,
        index: int,
        records: list[StateRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Append and replay records; with a producer id they are part of its transaction."""
        shard = self.shard(index)
        now_ms = self._clock.now_ms()
        encoded = [encode_record(record) for record in records]
        base_offset = self.append_encoded(
            index, encoded, now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        for number, record in enumerate(records):
            shard.replay(record, Origin(base_offset + number, now_ms, producer_id, producer_epoch))

    def append_encoded(
        self,
        index: int,
        records: Iterable[EncodedRecord],
        now_ms: int,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> int:
        """Append records that the caller replays itself; returns the offset of the first."""
        batch = build_batch(
            [Record(number, now_ms, key, value) for number, (key, value) in enumerate(records)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            attributes=0 if producer_id == NO_PRODUCER_ID else TRANSACTIONAL_BIT,
        )
        try:
            partition = self._partitions.leader(self.topic, index)
            return partition.append(memoryview(batch), AppendOrigin.COORDINATOR).base_offset
        except KafkaError as error:
            raise KafkaError(_APPEND_ERRORS.get(error.error, error.error), error.message) from error

    # Loading

    async def load(self) -> None:
        """Replay every partition that this broker was elected for, while the broker serves."""
        while self._loading:
            index = min(self._loading)
            try:
                partition = self._partitions.leader(self.topic, index)
                shard = await self._replay(partition)
            except KafkaError as error:
                logger.error(
                    "cannot load %s-%d: %s; its keys are unavailable, those of other partitions are not",
                    self.topic,
                    index,
                    error,
                )
            else:
                # The partition may have been resigned meanwhile.
                if index in self._loading:
                    self._serve(partition, shard)
            self._loading.discard(index)

    async def _replay(self, partition: Partition) -> S:
        shard = self._new_shard(partition.index)
        loader = Loader(shard, self._schemas, self._superseding, partition)
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, LOAD_BYTES, min_one_batch=True)
            if piece is None:
                break
            began = offset
            for header, batch in iterate_batches(log.copy(piece)):
                loader.take(header, batch)
                offset = header.next_offset
            if offset <= began:
                raise CorruptBatch(f"There is no whole batch at offset {began}")
            await asyncio.sleep(0)
        while loader.replay_newest(LOAD_RECORDS):
            await asyncio.sleep(0)
        return shard


@lru_cache(maxsize=10_000)
def positive_hash(key: str) -> int:
    """The number by which Kafka spreads groups and transactions over partitions."""
    value = java_hash(key)
    # The one int32 that has no absolute value counts as 0.
    return 0 if value == -(1 << 31) else abs(value)


def java_hash(text: str) -> int:
    """Java's String.hashCode."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
