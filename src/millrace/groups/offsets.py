"""Committed offsets: one per group and partition, those of open transactions waiting beside them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from millrace.coordinator.records import Origin, StateRecord, encode_key, encode_value
from millrace.groups.group import Group
from millrace.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from millrace.wire.records import NO_PRODUCER_ID
from millrace.wire.schema import ZERO_UUID

NO_EXPIRY = -1
# v3 has the leader epoch; v1 alone has an expiry; v4 has the topic's id.
PLAIN_VERSION, EXPIRING_VERSION, TOPIC_ID_VERSION = 3, 1, 4

TopicPartition = tuple[str, int]

CommittedOffset: TypeAlias = OffsetCommitValue
"""An offset is kept as the record that makes it last, and never changed."""


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset; consumers commit the same few over and over."""
    # Only those of short group ids are remembered: clients choose them, and may choose them long.
    if len(group_id) <= _REMEMBERED_CHARACTERS:
        return _remembered_key(group_id, topic, partition)
    return _encode_offset_key(group_id, topic, partition)


def _encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


_REMEMBERED_CHARACTERS = 256
_remembered_key = lru_cache(maxsize=10_000)(_encode_offset_key)


def encode_offset(committed: CommittedOffset) -> bytes:
    """The value of a committed offset, in the version that holds all it says."""
    if committed.expire_timestamp != NO_EXPIRY:
        version = EXPIRING_VERSION
    else:
        version = PLAIN_VERSION if committed.topic_id == ZERO_UUID else TOPIC_ID_VERSION
    return encode_value(committed, version)


def tombstone(group_id: str, topic: str, partition: int) -> StateRecord:
    return StateRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


class Offsets:
    """The offsets of one shard's groups; changed only by replaying. Owned by the broker loop."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # By producer id: what its open transaction has committed; None stands for a deletion.
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    # Reading

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._committed.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return self._committed.get(group_id, {})

    def groups(self) -> Iterator[str]:
        """Every group that has committed something."""
        return iter(self._committed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to change this offset."""
        return any((topic, partition) in pending.get(group_id, ()) for pending in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in pending for pending in self._pending.values())

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    # Deciding

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[StateRecord]:
        """The tombstones of offsets that are past their retention."""
        subscribed = group.subscribed_topics()
        if subscribed is None:
            return []
        return [
            tombstone(group.group_id, topic, partition)
            for (topic, partition), committed in self.of_group(group.group_id).items()
            if topic not in subscribed
            and not self.is_pending(group.group_id, topic, partition)
            and _is_expired(committed, group, now_ms, retention_ms)
        ]

    def of_topic(self, topic: str) -> list[StateRecord]:
        """The tombstones of every offset of a topic, those of open transactions included."""
        found = {
            (group_id, partition)
            for groups in (self._committed, *self._pending.values())
            for group_id, offsets in groups.items()
            for name, partition in offsets
            if name == topic
        }
        return [tombstone(group_id, topic, partition) for group_id, partition in sorted(found)]

    def tombstones(self, group_id: str) -> list[StateRecord]:
        """The tombstones of every offset of a group, those of open transactions included."""
        partitions = set(self.of_group(group_id))
        for pending in self._pending.values():
            partitions |= pending.get(group_id, {}).keys()
        return [tombstone(group_id, topic, partition) for topic, partition in sorted(partitions)]

    # Replaying

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin) -> None:
        partition = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, partition)
        else:
            self.replay_commit(key.group, partition, value, origin.producer_id)

    def replay_commit(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, producer_id: int
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            groups = self._committed
        else:
            groups = self._pending.setdefault(producer_id, {})
        offsets = groups.get(group_id)
        if offsets is None:
            offsets = groups[group_id] = {}
        offsets[partition] = committed

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        _drop(self._committed, group_id, partition)
        for producer_id in list(self._pending):
            _drop(self._pending[producer_id], group_id, partition)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        pending = self._pending.pop(producer_id, {})
        if committed:
            for group_id, offsets in pending.items():
                self._committed.setdefault(group_id, {}).update(offsets)


def _drop(
    groups: dict[str, dict[TopicPartition, CommittedOffset]], group_id: str, partition: TopicPartition
) -> None:
    offsets = groups.get(group_id)
    if offsets is not None:
        offsets.pop(partition, None)
        if not offsets:
            del groups[group_id]


def _is_expired(committed: CommittedOffset, group: Group, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp != NO_EXPIRY:
        return now_ms >= committed.expire_timestamp
    since = group.offsets_idle_since(committed.commit_timestamp)
    return since is not None and now_ms - since >= retention_ms
