"""A member of a group of the consumer protocol: what it asked for, and how far it is with its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, Self

from millrace.coordinator.records import StateRecord
from millrace.groups.assignors.spec import Partition
from millrace.groups.classic_requests import Offers
from millrace.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

NEW_EPOCH = 0
LEFT_EPOCH = -1
"""Has left the group for good."""
AWAY_EPOCH = -2
"""A static member that has left and is expected back."""
NO_TIMEOUT = -1

Epochs = Mapping[Partition, int]
"""Partitions, each with the epoch of the assignment that gave it to its member."""


class MemberState(IntEnum):
    """The progress of a member towards its target, numbered as records number it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has partitions to give up first."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have yet to give up."""
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicSide(NamedTuple):
    """The session timeout and offers of a classic member in a group of the consumer protocol."""

    session_timeout_ms: int
    offers: Offers


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """Never changed, only replaced: by what is decided for it, and by what is replayed."""

    member_id: str

    # What it has told about itself.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    server_assignor: str | None = None
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    classic: ClassicSide | None = None

    # What has been decided about it.
    epoch: int = NEW_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved_to(self, epoch: int, state: MemberState, assigned: Epochs, revoking: Epochs) -> Self:
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )

    def owner_epoch(self, partition: Partition) -> int | None:
        """The epoch that gave it a partition which it has, or is still giving up."""
        epoch = self.assigned.get(partition)
        return self.revoking.get(partition) if epoch is None else epoch

    # Records

    def subscription_record(self, group_id: str) -> StateRecord:
        classic = self.classic and ClassicMemberMetadata(
            session_timeout_ms=self.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in self.classic.offers
            ],
        )
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=classic,
        )
        key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id)
        return StateRecord(key, value)

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> Self:
        """The member after its subscription record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_classic_side(value.classic_member_metadata),
        )

    def assignment_record(self, group_id: str) -> StateRecord:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_to_topics(self.assigned),
            partitions_pending_revocation=_to_topics(self.revoking),
        )
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id)
        return StateRecord(key, value)

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Self:
        """The member after its assignment record."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_from_topics(value.assigned_partitions, value.member_epoch),
            revoking=_from_topics(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> Self:
        return replace(
            self,
            epoch=LEFT_EPOCH,
            previous_epoch=LEFT_EPOCH,
            state=MemberState.STABLE,
            assigned={},
            revoking={},
        )


def _classic_side(metadata: ClassicMemberMetadata | None) -> ClassicSide | None:
    if metadata is None:
        return None
    offers = tuple((protocol.name, protocol.metadata) for protocol in metadata.supported_protocols)
    return ClassicSide(metadata.session_timeout_ms, offers)


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, list[int]]:
    """Partitions as messages carry them: by topic, each in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics


def _to_topics(epochs: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[epochs[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in by_topic(epochs).items()
    ]


def _from_topics(topics: Iterable[TopicPartitions], member_epoch: int) -> Epochs:
    """Records of older brokers lack the epochs; the member's is as good as any it could have."""
    epochs: dict[Partition, int] = {}
    for topic in topics:
        given = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        for index, epoch in zip(topic.partitions, given, strict=False):
            epochs[topic.topic_id, index] = epoch
    return epochs
