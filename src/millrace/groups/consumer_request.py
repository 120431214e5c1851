"""The heartbeat of a member of a consumer group (KIP-848) and its result, independent of the wire."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.consumer_member import AWAY_EPOCH, LEFT_EPOCH, NEW_EPOCH, NO_TIMEOUT, ConsumerMember
from millrace.groups.reconciliation import Owned


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat. What is None has not changed since the one before."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topic_names: Collection[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Owned = None
    makes_own_id: bool = True
    """Whether the member made its id itself, so that a lost response to its join leaves no member behind."""

    @property
    def is_full(self) -> bool:
        """Whether the member tells everything about itself, as it does when it may have missed a response."""
        is_subscribed = self.topic_names is not None or self.topic_regex is not None
        return self.member_epoch == NEW_EPOCH or (
            self.rebalance_timeout_ms != NO_TIMEOUT and is_subscribed and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The epoch of the member, and its partitions if they have changed or the heartbeat was full."""

    member_id: str
    member_epoch: int
    interval_ms: int = 0
    assignment: Collection[Partition] | None = None


def check_heartbeat(heartbeat: Heartbeat, assignors: Sequence[str]) -> None:
    """Raise as Kafka does for a heartbeat that is invalid for any member."""
    epoch = heartbeat.member_epoch
    if heartbeat.makes_own_id or epoch > NEW_EPOCH or epoch == LEFT_EPOCH:
        _check_text(heartbeat.member_id, "MemberId can't be empty.")
    _check_text(heartbeat.group_id, "GroupId can't be empty.")
    _check_text(heartbeat.instance_id, "InstanceId can't be empty.")
    _check_text(heartbeat.rack_id, "RackId can't be empty.")
    if epoch == NEW_EPOCH:
        _check_join(heartbeat)
    elif epoch == AWAY_EPOCH and heartbeat.instance_id is None:
        raise KafkaError(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise KafkaError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if heartbeat.server_assignor is not None and heartbeat.server_assignor not in assignors:
        raise KafkaError(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {heartbeat.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(text: str | None, complaint: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(Error.INVALID_REQUEST, complaint)


def _check_join(heartbeat: Heartbeat) -> None:
    if heartbeat.rebalance_timeout_ms == NO_TIMEOUT:
        raise KafkaError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if heartbeat.owned is None or heartbeat.owned:
        raise KafkaError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if heartbeat.topic_names is None and heartbeat.topic_regex is None:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def check_epoch(member: ConsumerMember, heartbeat: Heartbeat) -> None:
    """Raise unless the member has the epoch that the coordinator knows, or missed only the last response."""
    epoch, owned = heartbeat.member_epoch, heartbeat.owned
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member.epoch)
    if epoch != member.previous_epoch or owned is None or not owned <= member.assigned.keys():
        raise _fenced("smaller", epoch, member.epoch)


def _fenced(how: str, epoch: int, known: int) -> KafkaError:
    return KafkaError(
        Error.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )
