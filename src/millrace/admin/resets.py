"""Resets of a group's offsets: plans them for a preview, and carries them out.

plan = await plan_reset(client, "billing", to_earliest)
await apply_reset(client, "billing", plan)
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millrace.admin.group_offsets import Committed, commit_offsets, committed_offsets
from millrace.admin.groups import DEAD, EMPTY, describe_groups
from millrace.admin.offsets import EARLIEST, LATEST, list_offsets
from millrace.admin.topics import existing_topics
from millrace.client import Client, TopicPartition
from millrace.errors import Error, KafkaError

NewOffsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The new offset of each partition.

    `out_of_range` has the offsets that were wanted where the log does not have them; the nearest one it has
    takes their place. `without_records` are partitions without a record of the wanted time or later; their
    end takes its place.
    """

    offsets: NewOffsets
    out_of_range: NewOffsets = field(default_factory=dict)
    without_records: tuple[TopicPartition, ...] = ()


class Target(Protocol):
    """Decides on new offsets of partitions, given the group's current ones."""

    async def __call__(
        self, client: Client, partitions: Collection[TopicPartition], committed: Committed
    ) -> ResetPlan: ...


class GroupActive(KafkaError):
    """A group has members, which would overwrite new offsets."""

    def __init__(self, group_id: str, state: str) -> None:
        super().__init__(
            Error.NON_EMPTY_GROUP,
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is"
            f" {state}.",
        )


async def plan_reset(
    client: Client, group_id: str, target: Target, partitions: Iterable[TopicPartition] | None = None
) -> ResetPlan:
    """Decide on the new offsets of these partitions, or of all that the group has committed.

    Nothing is changed. Raises GroupActive if the group has members, and KafkaError if a partition does not
    exist or has no leader.
    """
    await _check_inactive(client, group_id)
    committed = (await committed_offsets(client, [group_id]))[group_id]
    wanted = sorted(set(committed if partitions is None else partitions))
    await _check_partitions(client, wanted)
    return await target(client, wanted, committed)


async def apply_reset(client: Client, group_id: str, plan: ResetPlan) -> None:
    """Commit the offsets of a plan. Raises the first error."""
    if plan.offsets:
        (await commit_offsets(client, group_id, plan.offsets)).all()


async def _check_inactive(client: Client, group_id: str) -> None:
    described = await describe_groups(client, [group_id])
    error = described.failed.get(group_id)
    if error is not None and error.error is not Error.GROUP_ID_NOT_FOUND:
        raise error
    if error is None and described[group_id].state not in (EMPTY, DEAD):
        raise GroupActive(group_id, described[group_id].state)


async def _check_partitions(client: Client, partitions: Collection[TopicPartition]) -> None:
    topics = await existing_topics(client, {topic for topic, _ in partitions})
    leaders = {
        TopicPartition(topic.name, partition.index): partition.leader
        for topic in topics.values()
        for partition in topic.partitions
    }
    missing = [str(partition) for partition in partitions if partition not in leaders]
    if missing:
        raise KafkaError(
            Error.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{",".join(missing)}" do not exist'
        )
    leaderless = [str(partition) for partition in partitions if leaders[partition] is None]
    if leaderless:
        raise KafkaError(
            Error.LEADER_NOT_AVAILABLE, f'The partitions "{",".join(leaderless)}" have no leader'
        )


async def to_earliest(
    client: Client, partitions: Collection[TopicPartition], committed: Committed
) -> ResetPlan:
    """The oldest records."""
    return ResetPlan(await _listed(client, partitions, EARLIEST))


async def to_latest(
    client: Client, partitions: Collection[TopicPartition], committed: Committed
) -> ResetPlan:
    """The next record to come."""
    return ResetPlan(await _listed(client, partitions, LATEST))


async def to_current(
    client: Client, partitions: Collection[TopicPartition], committed: Committed
) -> ResetPlan:
    """The committed offset, or the end where there is none."""
    known = {partition: committed[partition].offset for partition in partitions if partition in committed}
    unknown = [partition for partition in partitions if partition not in committed]
    return ResetPlan(known | await _listed(client, unknown, LATEST))


def to_offset(offset: int) -> Target:
    """The same offset in every partition."""

    async def decide(
        client: Client, partitions: Collection[TopicPartition], committed: Committed
    ) -> ResetPlan:
        return await _within_range(client, dict.fromkeys(partitions, offset))

    return decide


def to_offsets(offsets: Mapping[TopicPartition, int]) -> Target:
    """A given offset for each partition."""

    async def decide(
        client: Client, partitions: Collection[TopicPartition], committed: Committed
    ) -> ResetPlan:
        return await _within_range(client, {partition: offsets[partition] for partition in partitions})

    return decide


def shift_by(count: int) -> Target:
    """Forwards by a number of records, or backwards if it is negative."""

    async def decide(
        client: Client, partitions: Collection[TopicPartition], committed: Committed
    ) -> ResetPlan:
        for partition in partitions:
            if partition not in committed:
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"Cannot shift offset for partition {partition} since there is no current committed"
                    " offset",
                )
        shifted = {partition: committed[partition].offset + count for partition in partitions}
        return await _within_range(client, shifted)

    return decide


def to_time(timestamp_ms: int) -> Target:
    """The first record of that time or later."""

    async def decide(
        client: Client, partitions: Collection[TopicPartition], committed: Committed
    ) -> ResetPlan:
        listed = (await list_offsets(client, dict.fromkeys(partitions, timestamp_ms))).all()
        found = {partition: at.offset for partition, at in listed.items() if at.offset is not None}
        later = [partition for partition in partitions if partition not in found]
        return ResetPlan(found | await _listed(client, later, LATEST), without_records=tuple(later))

    return decide


async def _within_range(client: Client, wanted: NewOffsets) -> ResetPlan:
    """The nearest offsets that the logs have."""
    first, last = await _listed(client, wanted, EARLIEST), await _listed(client, wanted, LATEST)
    offsets = {
        partition: min(max(offset, first[partition]), last[partition]) for partition, offset in wanted.items()
    }
    outside = {partition: offset for partition, offset in wanted.items() if offset != offsets[partition]}
    return ResetPlan(offsets, out_of_range=outside)


async def _listed(client: Client, partitions: Iterable[TopicPartition], timestamp: int) -> NewOffsets:
    listed = (await list_offsets(client, dict.fromkeys(partitions, timestamp))).all()
    return {partition: found.offset for partition, found in listed.items() if found.offset is not None}
