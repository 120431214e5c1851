"""Decide, append, replay: how a coordinator keeps its state in an internal topic.

A decision reads the state and returns records and a response. The records are appended to the internal
topic as one batch and then replayed, and only replaying changes the state; loading is replaying the same
records from the log. Everything happens on the broker loop, and an append is a write to the page cache, so
a decision, its append and its replay are one step that nothing else can come between.

Decisions go on from state that is not committed yet. A response must not: it waits until the log that the
state comes from is committed (`settled`). With one replica it is, and nothing waits.

A shard is loaded when this broker is elected for its partition, and dropped when it resigns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import lru_cache, partial
from operator import mul
from typing import Generic, NamedTuple, TypeVar

from millrace.clock import Clock
from millrace.coordinator.loading import Loader
from millrace.coordinator.records import EncodedRecord, Origin, Schemas, StateRecord, encode_record
from millrace.coordinator.shard import Shard
from millrace.deferred import Deferred, Eventual
from millrace.errors import Error, KafkaError
from millrace.metrics import Family, Histogram, Kind, MetricName, family, single
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.log import Log
from millrace.timers import Timers
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

# As Kafka's default of offsets.commit.timeout.ms.
COMMIT_TIMEOUT_MS = 5000

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


class Leadership(NamedTuple, Generic[S]):
    """A loaded shard, and the partition that its state comes from; a new one after each election."""

    shard: S
    partition: Partition


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
        timers: Timers,
        superseding: Collection[int] = (),
    ) -> None:
        """`partition_count` returns the number of a topic's partitions in the cluster's metadata.

        `superseding`: record types whose newest value for a key replaces all older ones.
        """
        self.topic = topic
        self._partition_count = partition_count
        self._schemas = schemas
        self._superseding = superseding
        self._new_shard = new_shard
        self._partitions = partitions
        self._create_topic = create_topic
        self._clock = clock
        self._timers = timers
        # Requests that wait for the topic; None unless it is being created.
        self._awaiting_topic: list[Deferred[None]] | None = None
        self._led: dict[int, Leadership[S]] = {}
        # By index: the leader epoch that the partition is loaded for.
        self._loading: dict[int, int] = {}
        self._writes = 0
        self._load_times_ms = Histogram()

    # Finding

    async def ensure_topic(self) -> None:
        """Create the internal topic, unless it exists; wait while another request creates it.

        Its metadata is visible before its partitions are led here. Clients that were sent here in between
        would get NOT_COORDINATOR, on which librdkafka's admin clients crash.
        """
        if self._awaiting_topic is not None:
            created: Deferred[None] = Deferred()
            self._awaiting_topic.append(created)
            await created
            return
        if self._partition_count(self.topic) is not None:
            return
        self._awaiting_topic = []
        try:
            await self._create_topic()
        finally:
            waiting, self._awaiting_topic = self._awaiting_topic, None
            for created in waiting:
                created.resolve(None)

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
        return self._find(index).shard

    def leadership(self, key: str) -> Leadership[S] | None:
        """The present leadership of a key's partition; None if this broker does not serve the key."""
        count = self._partition_count(self.topic)
        return self._led.get(positive_hash(key) % count) if count else None

    def _find(self, index: int) -> Leadership[S]:
        led = self._led.get(index)
        if led is not None:
            return led
        if index in self._loading:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        reason = self._partitions.offline_reason(self.topic, index)
        raise KafkaError(Error.NOT_COORDINATOR, reason or f"{self.topic}-{index} is not led by this broker")

    def leader_epoch(self, index: int) -> int:
        """The epoch in which this broker leads a partition."""
        return self._find(index).partition.leader_epoch

    @property
    def shards(self) -> Iterable[S]:
        """Every shard that is loaded."""
        return [led.shard for led in self._led.values()]

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # Writing

    def write(self, key: str, decide: Callable[[S], tuple[list[StateRecord], T]]) -> Deferred[T]:
        """Decide on the key's shard and make the decision last.

        The state has changed when this returns. The response is there once the change is committed, which
        may take as long as other replicas need; it fails with NOT_COORDINATOR if this broker resigns first.
        """
        index = self.partition_of(key)
        led = self._find(index)
        records, response = decide(led.shard)
        if records:
            self._append(index, records)
        return _committed(led.partition).convert(lambda _: response)

    def committed(self, index: int) -> Deferred[None]:
        """Resolves when the present state of a shard is committed; fails as `write` does."""
        return _committed(self._find(index).partition)

    def append(
        self,
        index: int,
        records: list[StateRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Deferred[None]:
        """Append and replay records; with a producer id they are part of its transaction.

        Resolves as `write` does.
        """
        self._append(index, records, producer_id, producer_epoch)
        return self.committed(index)

    def _append(
        self,
        index: int,
        records: list[StateRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        shard = self.shard(index)
        now_ms = self._clock.now_ms()
        encoded = [encode_record(record) for record in records]
        base_offset = self.append_encoded(
            index, encoded, now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        for number, record in enumerate(records):
            origin = Origin(base_offset + number, now_ms, producer_id, producer_epoch, record.unwritten)
            shard.replay(record, origin)

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
        partition = self._find(index).partition
        try:
            if partition.lacks_replicas:
                raise KafkaError(Error.NOT_ENOUGH_REPLICAS)
            base_offset = partition.append_as_leader(memoryview(batch), AppendOrigin.COORDINATOR).base_offset
        except KafkaError as error:
            raise _as_coordinator(error) from error
        self._writes += 1
        return base_offset

    # Responding

    def settled(
        self,
        key: str,
        response: T,
        on_error: Callable[[KafkaError], T] | None = None,
        *,
        since: Leadership[S] | None = None,
    ) -> Eventual[T]:
        """A response that was made from a key's state, once all of that state is committed.

        The response itself if it is committed already. Fails with NOT_COORDINATOR if this broker resigns
        first, and with COORDINATOR_NOT_AVAILABLE if it takes too long; `on_error` makes a response of that.

        A response that takes several steps names the leadership in which it was begun. If that is over, the
        state that it was made from may be lost, even if this broker has been elected again.
        """
        led = self.leadership(key)
        if since is not None and since is not led:
            committed: Deferred[None] = Deferred.failing(KafkaError(Error.NOT_COORDINATOR))
        elif led is None or not led.partition.is_replicated:
            return response
        else:
            committed = _committed(led.partition)
            if committed.resolved:
                return response
            committed = self._within_time(committed)
        return committed.convert(
            lambda _: response, None if on_error is None else partial(_on_kafka_error, on_error)
        )

    def _within_time(self, committed: Deferred[None]) -> Deferred[None]:
        def stop_waiting() -> None:
            self._timers.cancel(limited)
            committed.cancel()

        def time_out() -> None:
            committed.cancel()
            limited.fail(KafkaError(Error.COORDINATOR_NOT_AVAILABLE, "The replicas did not confirm in time."))

        def finish(outcome: BaseException | None) -> None:
            self._timers.cancel(limited)
            limited.resolve(None) if outcome is None else limited.fail(outcome)

        limited: Deferred[None] = Deferred(on_cancel=stop_waiting)
        self._timers.schedule(limited, COMMIT_TIMEOUT_MS, time_out)
        committed.then(finish)
        return limited

    # Leading

    def elected(self, index: int, leader_epoch: int) -> bool:
        """Take up the state of a partition that this broker leads now.

        An empty partition has its shard at once, any other one after `load`. Returns whether `load` must be
        called: it is not, if it is running for another partition.
        """
        if index in self._led:
            # The log of a leader that stays has not changed.
            return False
        partition = self._partitions.leader(self.topic, index)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            self._serve(partition, self._new_shard(index))
            return False
        is_running = bool(self._loading)
        self._loading[index] = leader_epoch
        return not is_running

    def resigned(self, index: int) -> None:
        """Drop the state of a partition that this broker does not lead any more."""
        self._loading.pop(index, None)
        led = self._led.pop(index, None)
        if led is not None:
            led.partition.on_marker = None
            led.shard.unloaded()

    def _serve(self, partition: Partition, shard: S) -> None:
        self._led[partition.index] = Leadership(shard, partition)
        partition.on_marker = shard.end_transaction
        shard.loaded()

    # Counting

    def families(self, metric_type: str) -> list[Family]:
        """The loads and writes of this coordinator, under the type that Kafka gives its metrics."""
        states = {"active": len(self._led), "loading": len(self._loading)}
        return [
            family(
                MetricName("kafka.server", metric_type, "num-partitions"),
                Kind.GAUGE,
                [({"state": state}, count) for state, count in states.items()],
            ),
            single(
                MetricName("kafka.server", metric_type, "partition-load-time"),
                Kind.HISTOGRAM,
                self._load_times_ms.distribution(),
            ),
            single(MetricName("kafka.server", metric_type, "write-count"), Kind.COUNTER, self._writes),
        ]

    # Loading

    async def load(self) -> None:
        """Replay every partition that this broker was elected for, while the broker serves."""
        while self._loading:
            index, leader_epoch = min(self._loading.items())
            shard = None
            began = self._clock.monotonic()
            try:
                partition = self._partitions.leader(self.topic, index)
                shard = await self._replay(partition, leader_epoch)
            except Exception as error:
                # Whatever is wrong with one partition, the others must be loaded.
                logger.error(
                    "cannot load %s-%d: %s; its keys are unavailable, those of other partitions are not",
                    self.topic,
                    index,
                    error,
                    exc_info=None if isinstance(error, KafkaError) else error,
                )
            if self._is_elected(index, leader_epoch):
                del self._loading[index]
                if shard is not None:
                    self._load_times_ms.observe((self._clock.monotonic() - began) * 1000)
                    self._serve(partition, shard)

    def _is_elected(self, index: int, leader_epoch: int) -> bool:
        """Whether a partition is still to be loaded for an epoch: it may have been resigned meanwhile."""
        return self._loading.get(index) == leader_epoch

    async def _replay(self, partition: Partition, leader_epoch: int) -> S | None:
        """The partition's state; None if it was resigned meanwhile."""
        shard = self._new_shard(partition.index)
        loader = Loader(shard, self._schemas, self._superseding, partition)
        log = partition.log
        offset = log.log_start_offset
        while self._is_elected(partition.index, leader_epoch):
            if offset < log.log_end_offset:
                offset = _replay_piece(log, loader, offset)
            elif not loader.replay_newest(LOAD_RECORDS):
                return shard
            # Transactions may end in the partition meanwhile, so the log's end is looked at again.
            await asyncio.sleep(0)
        return None


def _replay_piece(log: Log, loader: Loader, offset: int) -> int:
    """Replay some batches from an offset on; returns the offset that follows them."""
    piece = log.read(offset, LOAD_BYTES, min_one_batch=True)
    following = offset
    for header, batch in iterate_batches(b"" if piece is None else log.copy(piece)):
        loader.take(header, batch)
        following = header.next_offset
    if following <= offset:
        raise CorruptBatch(f"There is no whole batch at offset {offset}")
    return following


def _committed(partition: Partition) -> Deferred[None]:
    """Resolves when all that is in the partition now is committed."""
    if not partition.is_replicated:
        return Deferred.of(None)
    return partition.committed(partition.log.log_end_offset).convert(_nothing, _refuse)


def _nothing(_: None) -> None:
    return None


def _refuse(error: BaseException) -> None:
    raise _as_coordinator(error) if isinstance(error, KafkaError) else error


def _as_coordinator(error: KafkaError) -> KafkaError:
    """The error of a partition, as the coordinator's clients know it."""
    return KafkaError(_APPEND_ERRORS.get(error.error, error.error), error.message)


def _on_kafka_error(on_error: Callable[[KafkaError], T], error: BaseException) -> T:
    if not isinstance(error, KafkaError):
        raise error
    return on_error(error)


def positive_hash(key: str) -> int:
    """The number by which Kafka spreads groups and transactions over partitions."""
    # Only short keys are remembered: clients choose them, and may choose them long.
    return _remembered_hash(key) if len(key) <= _REMEMBERED_CHARACTERS else _positive_hash(key)


def _positive_hash(key: str) -> int:
    value = java_hash(key)
    # The one int32 that has no absolute value counts as 0.
    return 0 if value == -(1 << 31) else abs(value)


_REMEMBERED_CHARACTERS = 256
_remembered_hash = lru_cache(maxsize=10_000)(_positive_hash)


def java_hash(text: str) -> int:
    """Java's String.hashCode: the sum of the UTF-16 units, each times 31 to the power of its distance."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for start in range(0, len(units), len(_POWERS)):
        piece = units[start : start + len(_POWERS)]
        shift = _POWERS[-1] * 31 if len(piece) == len(_POWERS) else _POWERS[len(piece)]
        value = (value * shift + sum(map(mul, piece, reversed(_POWERS[: len(piece)])))) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(1024))
