"""One step of a member towards its target: what it has to give up goes first, and only what is free is given.

Nothing here changes anything: a member goes in, and the member as it shall be comes out.
"""

from __future__ import annotations

from collections.abc import Container, Set
from typing import NamedTuple

from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.consumer_member import ConsumerMember, Epochs, MemberState

Owned = Set[Partition] | None
"""The partitions a member says it has; None where it does not say."""


class Target(NamedTuple):
    """The partitions that a member will have in the end, and its epoch then."""

    epoch: int
    partitions: Set[Partition]


def reconcile(
    member: ConsumerMember,
    target: Target,
    *,
    topics: Container[bytes],
    taken: Container[Partition],
    owned: Owned,
    subscription_changed: bool,
) -> ConsumerMember:
    """The member's next state, given the topics it is subscribed to and the partitions that have an owner."""
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return _without_unsubscribed(member, topics, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(member.revoking, owned):
            return _without_unsubscribed(member, topics, owned) if subscription_changed else member
        case MemberState.UNKNOWN if owned is None or owned:
            # Written by a newer broker: only a member that has nothing can be brought on from here.
            raise KafkaError(
                Error.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        case _:
            return _next(member, target, topics, taken, owned)


def _next(
    member: ConsumerMember,
    target: Target,
    topics: Container[bytes],
    taken: Container[Partition],
    owned: Owned,
) -> ConsumerMember:
    wanted = {partition for partition in target.partitions if partition[0] in topics}
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in wanted}
    revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in wanted}
    if revoking and _still_owns(revoking, owned):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    missing = wanted - kept.keys()
    # What it is giving up itself it may as well keep.
    free = {partition for partition in missing if partition not in taken or partition in member.revoking}
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    return member.moved_to(target.epoch, state, kept | dict.fromkeys(free, target.epoch), {})


def _without_unsubscribed(member: ConsumerMember, topics: Container[bytes], owned: Owned) -> ConsumerMember:
    """Take away at once what the member has just unsubscribed from; the next target is yet to come."""
    dropped = {partition: epoch for partition, epoch in member.assigned.items() if partition[0] not in topics}
    if not dropped:
        return member
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition not in dropped}
    revoking = {**member.revoking, **dropped}
    if _still_owns(revoking, owned):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return member.moved_to(member.epoch, member.state, kept, member.revoking)


def _still_owns(revoking: Epochs, owned: Owned) -> bool:
    return owned is None or not owned.isdisjoint(revoking)
