"""The group coordinator: every group and its offsets, kept in `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.coordinator.records import StateRecord
from millrace.coordinator.runtime import Leadership, Runtime
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.groups.classic_protocol import ClassicProtocol
from millrace.groups.consumer_protocol import ConsumerProtocol
from millrace.groups.consumer_sessions import GroupConfigOf
from millrace.groups.group import Commit, Group, Topics
from millrace.groups.mixed import MixedProtocol
from millrace.groups.offsets import (
    CommittedOffset,
    TopicPartition,
    encode_offset,
    encode_offset_key,
    tombstone,
)
from millrace.groups.shard import SCHEMAS, GroupShard
from millrace.metrics import Family, Kind, MetricName, single
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.steps import Steps
from millrace.timers import Timers, pause
from millrace.wire.messages.group_records import OffsetCommitKey
from millrace.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.wire.schema import ZERO_UUID

logger = logging.getLogger(__name__)

R = TypeVar("R")

OFFSETS_TOPIC = "__consumer_offsets"
SIMPLE_CONSUMER_GENERATION = -1

METRIC_TYPE = "group-coordinator-metrics"
OFFSETS_COMMITTED = MetricName("kafka.server", METRIC_TYPE, "offset-commit-count")
CLASSIC_REBALANCES = MetricName("kafka.server", METRIC_TYPE, "group-completed-rebalance-count")
CONSUMER_REBALANCES = MetricName("kafka.server", METRIC_TYPE, "consumer-group-rebalance-count")

CreateTopic = Callable[[str, int, dict[str, str]], Awaitable[object]]
"""Creates an internal topic: name, partitions, configs."""


class TransactionalCommit(NamedTuple):
    """Offsets that become visible when the producer's transaction commits."""

    producer_id: int
    producer_epoch: int


NO_TRANSACTION = TransactionalCommit(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Groups:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        *,
        topics: Topics,
        partition_count: Callable[[str], int | None],
        partitions: HostedPartitions,
        create_topic: CreateTopic,
        config: BrokerConfig,
        group_config: GroupConfigOf,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.topics = topics
        self.config = config
        self.clock = clock
        self.timers = timers
        self.runtime: Runtime[GroupShard] = Runtime(
            OFFSETS_TOPIC,
            SCHEMAS,
            lambda index: GroupShard(index, self._loaded, self._unloaded),
            partition_count=partition_count,
            partitions=partitions,
            create_topic=lambda: create_topic(
                OFFSETS_TOPIC, config.offsets_topic_num_partitions, self._topic_configs()
            ),
            clock=clock,
            timers=timers,
            superseding=[OffsetCommitKey.record_type],
        )
        self.classic = ClassicProtocol(self.runtime, config=config, clock=clock, timers=timers)
        self.consumer = ConsumerProtocol(
            self.runtime,
            self.classic,
            topics=topics,
            config=config,
            group_config=group_config,
            clock=clock,
            timers=timers,
        )
        self.classic.other_protocol = MixedProtocol(self.consumer)
        self._committed_offsets = 0

    def _topic_configs(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.config.offsets_topic_segment_bytes),
        }

    def _loaded(self, shard: GroupShard) -> None:
        self.classic.on_loaded(shard)
        self.consumer.on_loaded(shard)

    def _unloaded(self, shard: GroupShard) -> None:
        self.classic.on_unloaded(shard)
        self.consumer.on_unloaded(shard)

    def families(self) -> Steps[list[Family]]:
        """Loads, writes, commits and rebalances."""
        yield
        return [
            *self.runtime.families(METRIC_TYPE),
            single(OFFSETS_COMMITTED, Kind.COUNTER, self._committed_offsets),
            single(CLASSIC_REBALANCES, Kind.COUNTER, self.classic.rebalances.completed),
            single(CONSUMER_REBALANCES, Kind.COUNTER, self.consumer.rebalances),
        ]

    # Finding

    def find(self, group_id: str) -> Group | None:
        """A group by its id; raises when its coordinator is not ready."""
        return self.runtime.shard_of(group_id).find(group_id)

    def get(self, group_id: str) -> Group:
        return self.runtime.shard_of(group_id).get(group_id)

    def __iter__(self) -> Iterator[Group]:
        for shard in self.runtime.shards:
            yield from shard

    def settled(
        self,
        group_id: str,
        response: R,
        on_error: Callable[[KafkaError], R] | None = None,
        *,
        since: Leadership[GroupShard] | None = None,
    ) -> Eventual[R]:
        """A response about a group, once the state that it was made from is committed."""
        return self.runtime.settled(group_id, response, on_error, since=since)

    # Offsets

    def commit(
        self,
        group_id: str,
        by: Commit,
        offsets: Collection[tuple[TopicPartition, CommittedOffset]],
        transaction: TransactionalCommit = NO_TRANSACTION,
    ) -> None:
        """Commit offsets; raises KafkaError if this member may not commit them."""
        index = self.runtime.partition_of(group_id)
        shard = self.runtime.shard(index)
        group = shard.find(group_id)
        self._validate_commit(group, group_id, by)
        if group is not None:
            group.validate_committed(by, self._by_id(offsets))
        if not offsets:
            return
        producer_id, producer_epoch = transaction
        self.runtime.append_encoded(
            index,
            [
                (encode_offset_key(group_id, topic, partition), encode_offset(committed))
                for (topic, partition), committed in offsets
            ],
            self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        for partition, committed in offsets:
            shard.offsets.replay_commit(group_id, partition, committed, producer_id)
        self._committed_offsets += len(offsets)

    def _by_id(
        self, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]
    ) -> Iterator[tuple[bytes, int]]:
        for (topic, index), _ in offsets:
            known = self.topics.topics.get(topic)
            yield ZERO_UUID if known is None else known.topic_id, index

    def _validate_commit(self, group: Group | None, group_id: str, by: Commit) -> None:
        if group is not None:
            group.validate_commit(by)
        elif by.generation > SIMPLE_CONSUMER_GENERATION:
            # Members belong to a group. A client that names no generation uses no group management.
            if by.is_transactional or not by.knows_epochs:
                raise KafkaError(Error.ILLEGAL_GENERATION)
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Delete offsets of topics that no member is subscribed to; the outcome of each."""
        shard = self.runtime.shard_of(group_id)
        group = shard.get(group_id)
        group.validate_delete_offsets()
        subscribed = group.subscribed_topics()
        outcome = {
            # Where subscriptions cannot be read, every topic may be one of them.
            (topic, partition): Error.GROUP_SUBSCRIBED_TO_TOPIC
            if subscribed is None or topic in subscribed
            else Error.NONE
            for topic, partition in partitions
        }
        records = [
            tombstone(group_id, *partition)
            for partition, error in outcome.items()
            if error is Error.NONE and shard.offsets.get(group_id, *partition) is not None
        ]
        if records:
            self.runtime.append(shard.index, records)
        return outcome

    # Deleting and expiring

    def delete(self, group_id: str) -> None:
        """Delete a group that has no members, with its offsets."""

        def decide(shard: GroupShard) -> tuple[list[StateRecord], None]:
            group = shard.get(group_id)
            if not group.is_empty:
                raise KafkaError(Error.NON_EMPTY_GROUP)
            return shard.offsets.tombstones(group_id) + group.tombstones(), None

        self.runtime.write(group_id, decide)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic: they mean nothing for a new topic of the same name."""
        for shard in list(self.runtime.shards):
            records = shard.offsets.of_topic(topic)
            if not records:
                continue
            try:
                self.runtime.append(shard.index, records)
            except KafkaError as error:
                logger.error("the offsets of deleted topic %s stay until they expire: %s", topic, error)

    async def expire_forever(self) -> None:
        """Let go of offsets unused for offsets.retention.minutes, and of groups left with none."""
        while True:
            await pause(self.timers, self.config.offsets_retention_check_interval_ms)
            for shard in list(self.runtime.shards):
                try:
                    self.expire(shard)
                except KafkaError as error:
                    logger.error("offsets cannot be expired: %s; it is tried again", error)
                await asyncio.sleep(0)

    def expire(self, shard: GroupShard) -> None:
        now_ms = self.clock.now_ms()
        retention_ms = self.config.offsets_retention_minutes * 60_000
        records: list[StateRecord] = []
        for group in list(shard):
            expired = shard.offsets.expired(group, now_ms, retention_ms)
            records += expired
            keeps_some = len(expired) < len(shard.offsets.of_group(group.group_id))
            if group.is_empty and not keeps_some and not shard.offsets.has_pending(group.group_id):
                records += group.tombstones()
        if records:
            self.runtime.append(shard.index, records)
