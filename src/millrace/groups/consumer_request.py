"""What is wrong with a ConsumerGroupHeartbeat, before and after its member is known."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import Error, KafkaError
from millrace.groups.consumer_member import AWAY_EPOCH, LEFT_EPOCH, NEW_EPOCH, NO_TIMEOUT, ConsumerMember
from millrace.groups.reconciliation import Owned
from millrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# From here on members make their own ids, so that an answer that was lost leaves nobody behind.
OWN_IDS_FROM = 1


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raise what Kafka raises for a request that makes no sense whoever sends it."""
    epoch = request.member_epoch
    if api_version >= OWN_IDS_FROM or epoch > NEW_EPOCH or epoch == LEFT_EPOCH:
        _check_text(request.member_id, "MemberId can't be empty.")
    _check_text(request.group_id, "GroupId can't be empty.")
    _check_text(request.instance_id, "InstanceId can't be empty.")
    _check_text(request.rack_id, "RackId can't be empty.")
    if epoch == NEW_EPOCH:
        _check_join(request)
    elif epoch == AWAY_EPOCH and request.instance_id is None:
        raise KafkaError(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise KafkaError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(text: str | None, complaint: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(Error.INVALID_REQUEST, complaint)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise KafkaError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise KafkaError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise unless the member is where the coordinator has it, or missed no more than the last answer."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member.epoch)
    owned = owned_partitions(request)
    if epoch != member.previous_epoch or owned is None or not owned <= member.assigned.keys():
        raise _fenced("smaller", epoch, member.epoch)


def _fenced(how: str, epoch: int, known: int) -> KafkaError:
    return KafkaError(
        Error.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned:
    if request.topic_partitions is None:
        return None
    return {(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions}
