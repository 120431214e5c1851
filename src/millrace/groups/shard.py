"""The groups and offsets behind one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millrace.coordinator.records import Origin, StateRecord
from millrace.errors import Error, KafkaError
from millrace.groups.group import Group
from millrace.groups.offsets import Offsets
from millrace.groups.simple import SimpleGroup
from millrace.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millrace.wire.schema import Message, RecordKey

Replay = Callable[["GroupShard", Any, Any, Origin], None]
"""Applies a key and a value (None when deleted) to a shard."""

SCHEMAS: dict[int, tuple[type[RecordKey], type[Message]]] = {
    LegacyOffsetCommitKey.record_type: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    OffsetCommitKey.record_type: (OffsetCommitKey, OffsetCommitValue),
    GroupMetadataKey.record_type: (GroupMetadataKey, GroupMetadataValue),
}
"""Every record type of the topic; the files that own the other types add theirs."""

_REPLAYS: dict[type[RecordKey], Replay] = {}


def replays(key: type[RecordKey], value: type[Message]) -> Callable[[Replay], Replay]:
    """Marks the function that replays records of a type, where the state they change is kept."""

    def register(replay: Replay) -> Replay:
        SCHEMAS[key.record_type] = (key, value)
        _REPLAYS[key] = replay
        return replay

    return register


class GroupShard:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        index: int,
        on_loaded: Callable[[GroupShard], None],
        on_unloaded: Callable[[GroupShard], None],
    ) -> None:
        self.index = index
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def find(self, group_id: str) -> Group | None:
        """The group, or what stands for one that has only offsets."""
        group = self.groups.get(group_id)
        if group is None and self.offsets.of_group(group_id):
            return SimpleGroup(group_id)
        return group

    def get(self, group_id: str) -> Group:
        group = self.find(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def __iter__(self) -> Iterator[Group]:
        yield from self.groups.values()
        for group_id in self.offsets.groups():
            if group_id not in self.groups:
                yield SimpleGroup(group_id)

    def replay(self, record: StateRecord, origin: Origin) -> None:
        replay = _REPLAYS.get(type(record.key))
        if replay is not None:
            replay(self, record.key, record.value, origin)

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self) -> None:
        self._on_loaded(self)

    def unloaded(self) -> None:
        self._on_unloaded(self)


@replays(OffsetCommitKey, OffsetCommitValue)
def _replay_offset(
    shard: GroupShard, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin
) -> None:
    shard.offsets.replay(key, value, origin)


@replays(LegacyOffsetCommitKey, LegacyOffsetCommitValue)
def _replay_legacy_offset(
    shard: GroupShard, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None, origin: Origin
) -> None:
    current = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    shard.offsets.replay(current, None if value is None else _as_current(value), origin)


def _as_current(value: LegacyOffsetCommitValue) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
