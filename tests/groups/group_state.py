"""The lasting state of a coordinator's groups and offsets, and the state that its log gives."""

from typing import Any

from millrace.groups.classic import ClassicGroup, State
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.coordinator import OFFSETS_TOPIC
from millrace.groups.shard import SCHEMAS, GroupShard
from millrace.wire.messages.group_records import OffsetCommitKey

from ..coordinator.replaying import replay
from .members import Coordinator


def live_state(coordinator: Coordinator) -> dict[str, Any]:
    """Every group that its record describes at present, and all offsets."""
    return _state(list(coordinator.groups.runtime.shards))


def replayed_state(coordinator: Coordinator) -> dict[str, Any]:
    """The same for another coordinator that takes over."""
    return _state(
        [
            replay(
                partition,
                GroupShard(partition.index, lambda _: None, lambda _: None),
                SCHEMAS,
                [OffsetCommitKey.record_type],
            )
            for partition in coordinator.cluster.partitions.of_topic(OFFSETS_TOPIC)
        ]
    )


def unstable(coordinator: Coordinator) -> set[str]:
    """Classic groups between two generations: they are ahead of their records, which is allowed."""
    return {
        group.group_id
        for group in coordinator.groups
        if isinstance(group, ClassicGroup) and group.state is not State.STABLE
    }


def _state(shards: list[GroupShard]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for shard in shards:
        for group in shard.groups.values():
            state[group.group_id] = _classic(group) if isinstance(group, ClassicGroup) else _consumer(group)
        for group_id in shard.offsets.groups():
            state[f"offsets of {group_id}"] = dict(shard.offsets.of_group(group_id))
    return state


def _classic(group: ClassicGroup) -> dict[str, Any]:
    return {
        "record": group.to_record(),
        "state": group.state,
        "topics": group.subscribed_topics(),
        "static": {
            member.group_instance_id: group.static_member_id(member.group_instance_id)
            for member in group.members.values()
        },
    }


def _consumer(group: Any) -> dict[str, Any]:
    assert isinstance(group, ConsumerGroup)
    kept = (
        "epoch",
        "metadata_hash",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "members",
        "targets",
        "resolved",
        "owners",
        "names",
        "regexes",
        "classic_protocols",
        "classic_members",
    )
    return {name: getattr(group, name) for name in kept}
