"""Groups that change between the classic and the consumer protocol while they are in use.

The first member that speaks the consumer protocol turns a classic group of consumers into a consumer group,
and when the last one leaves, the group is turned back. In between, both kinds of members share it.
"""

from __future__ import annotations

import logging
from struct import Struct as Layout

from millrace.config import BrokerConfig
from millrace.coordinator.records import Origin, StateRecord
from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.classic import ClassicGroup
from millrace.groups.classic_member import Member
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_member import ClassicSide, ConsumerMember, Epochs, by_topic
from millrace.groups.draft import Draft
from millrace.groups.group import CONSUMER_PROTOCOL_TYPE, Topics
from millrace.groups.shard import GroupShard
from millrace.wire.codec import MalformedMessage, decode, encode
from millrace.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

logger = logging.getLogger(__name__)

UPGRADE_POLICIES = ("upgrade", "bidirectional")
DOWNGRADE_POLICIES = ("downgrade", "bidirectional")
STANDARD_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Members do not need the data that these add to an assignment; librdkafka repeats the subscription's."""

_VERSION = Layout(">h")
# What clients of the future may send is read as the newest version there is now.
_HIGHEST_VERSION = max(ConsumerProtocolSubscription.versions)
_NOWHERE = Origin(-1, -1)


# What members of the classic protocol say to each other


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    version = _read_version(metadata)
    return decode(ConsumerProtocolSubscription, min(version, _HIGHEST_VERSION), metadata, _VERSION.size)[0]


def read_assignment(content: bytes) -> ConsumerProtocolAssignment:
    version = _read_version(content)
    return decode(ConsumerProtocolAssignment, min(version, _HIGHEST_VERSION), content, _VERSION.size)[0]


def write_assignment(partitions: Epochs | frozenset[Partition], topics: Topics, metadata: bytes) -> bytes:
    """An assignment in the version of its member's subscription; topics are by name here."""
    version = min(_read_version(metadata), _HIGHEST_VERSION)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topics.by_id[topic_id].name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in topics.by_id
        ]
    )
    return _VERSION.pack(version) + encode(assignment, version)


def partitions_of(assigned: list[TopicPartition], topics: Topics) -> set[Partition]:
    """Partitions by topic id; those of unknown topics are left out."""
    return {
        (topics.topics[topic.topic].topic_id, index)
        for topic in assigned
        if topic.topic in topics.topics
        for index in topic.partitions
    }


def _read_version(content: bytes) -> int:
    if len(content) < _VERSION.size:
        raise MalformedMessage("a consumer's metadata is cut short")
    (version,) = _VERSION.unpack_from(content)
    if version < 0:
        raise MalformedMessage(f"a consumer's metadata has version {version}")
    return int(version)


# From classic to consumer


def upgrade(group: ClassicGroup, topics: Topics, config: BrokerConfig) -> Draft:
    """The consumer group that takes a classic group's place, with the records that make it so."""
    _check_upgrade(group, config)
    try:
        members = _upgraded_members(group, topics)
    except MalformedMessage as error:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed.") from error
    draft = Draft(ConsumerGroup(group.group_id), topics, group.tombstones())
    draft.found(members, group.generation)
    # The group as it will be: what comes next is decided on it, and appended in the same batch.
    shard = GroupShard(-1, lambda _: None, lambda _: None)
    for record in draft.records:
        shard.replay(record, _NOWHERE)
    upgraded = shard.groups[group.group_id]
    assert isinstance(upgraded, ConsumerGroup)
    return Draft(upgraded, topics, draft.records)


def _check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    if config.group_consumer_migration_policy not in UPGRADE_POLICIES:
        raise _cannot_upgrade(group, "online upgrade is disabled.")
    if not group.uses_consumer_protocol:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > config.group_consumer_max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    logger.info(message)
    return KafkaError(Error.GROUP_ID_NOT_FOUND, message)


def _upgraded_members(group: ClassicGroup, topics: Topics) -> list[ConsumerMember]:
    taken: set[Partition] = set()
    members = []
    for member in group.members.values():
        # A faulty assignor may have given a partition to two of them.
        partitions = _assigned(group, member, topics) - taken
        taken |= partitions
        members.append(_upgraded(member, group.generation, partitions))
    return members


def _assigned(group: ClassicGroup, member: Member, topics: Topics) -> set[Partition]:
    if not member.assignment:
        return set()
    assignment = read_assignment(member.assignment)
    if assignment.user_data and group.protocol not in STANDARD_ASSIGNORS:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade.",
        )
    return partitions_of(assignment.assigned_partitions, topics)


def _upgraded(member: Member, generation: int, partitions: set[Partition]) -> ConsumerMember:
    # A consumer says the same under all of its protocols.
    subscription = read_subscription(member.offers[0][1])
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        classic=ClassicSide(member.session_timeout_ms, member.offers),
        epoch=generation,
        previous_epoch=generation,
        assigned=dict.fromkeys(partitions, generation),
    )


# From consumer to classic


def can_downgrade(group: ConsumerGroup, config: BrokerConfig) -> bool:
    """Whether only members of the classic protocol are left, and may have the group to themselves."""
    return (
        0 < group.classic_members == len(group.members) <= config.group_max_size
        and config.group_consumer_migration_policy in DOWNGRADE_POLICIES
    )


def downgrade(group: ConsumerGroup, topics: Topics, now_ms: int) -> list[StateRecord]:
    """The records that put a classic group, in a generation of the same number, in the group's place."""
    classic = ClassicGroup(group.group_id)
    classic.generation = group.epoch
    classic.state_since_ms = now_ms
    for member in group.members.values():
        if member.classic is not None:
            classic.add(_downgraded(member, member.classic), CONSUMER_PROTOCOL_TYPE)
    classic.protocol = classic.select_protocol()
    assignments = {
        member_id: write_assignment(
            group.target_of(member_id), topics, member.metadata(classic.protocol) or b""
        )
        for member_id, member in classic.members.items()
    }
    return [*group.tombstones(), classic.record_with_assignments(assignments)]


def _downgraded(member: ConsumerMember, classic: ClassicSide) -> Member:
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        offers=classic.offers,
    )
