"""A group of the consumer protocol (KIP-848): its members, what each shall have, and what each has.

The group's epoch rises whenever its assignment has to change; the target assignment follows at its own
epoch, and every member at its own pace. All of it is kept in records, a few for the group and three for each
member, and changes only by replaying them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from millrace.coordinator.records import Origin, StateRecord
from millrace.errors import Error, KafkaError
from millrace.groups.assignors.spec import NO_PARTITIONS, Partition
from millrace.groups.consumer_member import ConsumerMember, MemberState
from millrace.groups.group import CONSUMER_PROTOCOL_TYPE, Commit, Group, Topics
from millrace.groups.shard import GroupShard, replays
from millrace.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NO_HASH = 0


class State(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is behind the group."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target."""
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when it was last looked at."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(Group):
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

        # What records keep.
        self.epoch = 0
        self.metadata_hash = NO_HASH
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, frozenset[Partition]] = {}
        self.resolved: dict[str, ResolvedRegex] = {}

        # Of the members.
        self.owners: dict[Partition, str] = {}
        """The member that has each partition, or is still giving it up."""
        self.names: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        """The number of classic members that support each protocol."""
        self.classic_members = 0
        self._static: dict[str, str] = {}

        # Only in memory.
        self.seen_topics_version: int | None = None
        """The version of the topics that the metadata hash was last compared with."""
        self.resolved_topics_version: int | None = None
        """The version of the topics that the regular expressions were last matched against."""

    # What every group tells

    @property
    def kind(self) -> str:
        return "consumer"

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def validate_commit(self, commit: Commit) -> None:
        if commit.generation < 0 and self.is_empty:
            # An admin client, or a consumer that uses no group management.
            return
        is_anonymous = commit.generation < 0 and not commit.member_id and commit.group_instance_id is None
        if commit.is_transactional and is_anonymous:
            return
        member = self.member(commit.member_id)
        if not commit.is_transactional and member.classic is None and not commit.knows_epochs:
            raise KafkaError(
                Error.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if commit.generation > member.epoch:
            raise _stale(
                member,
                f"Received {_epoch_name(member)} {commit.generation} is newer than "
                f"current member epoch {member.epoch}.",
            )

    def validate_committed(self, commit: Commit, partitions: Iterable[Partition]) -> None:
        """A member that is behind may commit what it has had since then; others have the rest by now."""
        member = self.members.get(commit.member_id)
        if member is None or commit.generation == member.epoch:
            return
        for partition in partitions:
            epoch = member.owner_epoch(partition)
            if epoch is None:
                raise _stale(member, "The partition is not assigned or pending revocation for member.")
            if commit.generation < epoch:
                raise _stale(
                    member,
                    f"Received {_epoch_name(member)} {commit.generation} is older than "
                    f"assignment epoch {epoch} of the partition.",
                )

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(
                member,
                f"The received {_epoch_name(member)} {member_epoch} does not match "
                f"the expected member epoch {member.epoch}.",
            )

    def validate_delete_offsets(self) -> None:
        """Offsets of topics without a subscriber can always be deleted."""

    def subscribed_topics(self) -> set[str]:
        return set(self.names).union(*(resolved.topics for resolved in self.resolved.values()))

    def offsets_idle_since(self, commit_timestamp_ms: int) -> int:
        return commit_timestamp_ms

    def tombstones(self) -> list[StateRecord]:
        group_id = self.group_id
        members = sorted(self.members.keys() | self.targets.keys())
        keys = [
            *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=id) for id in members),
            *(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=id) for id in members),
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=id) for id in members),
            *(
                ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
                for regex in sorted(self.resolved)
            ),
            ConsumerGroupMetadataKey(group_id=group_id),
        ]
        return [StateRecord(key, None) for key in keys]

    # Members

    def member(self, member_id: str) -> ConsumerMember:
        try:
            return self.members[member_id]
        except KeyError:
            raise KafkaError(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            ) from None

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def target_of(self, member_id: str) -> frozenset[Partition]:
        return self.targets.get(member_id, NO_PARTITIONS)

    def waits_in_vain(self, member: ConsumerMember) -> bool:
        """Whether a member still waits for partitions although they are free by now."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
            partition in self.owners and partition not in member.assigned
            for partition in self.target_of(member.member_id)
        )

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member of the classic protocol could join: those here must share one of its protocols."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.classic_protocols[protocol] == self.classic_members for protocol in protocols
        )

    # Replaying

    def put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        self._forget(old)
        self.members[member.member_id] = member
        self.names.update(member.topic_names)
        if member.topic_regex:
            self.regexes[member.topic_regex] += 1
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(name for name, _ in member.classic.offers)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.owners.update(dict.fromkeys((*member.assigned, *member.revoking), member.member_id))

    def remove(self, member_id: str) -> None:
        self._forget(self.members.pop(member_id, None))

    def _forget(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        _discount(self.names, member.topic_names)
        if member.topic_regex:
            _discount(self.regexes, (member.topic_regex,))
        if member.classic is not None:
            self.classic_members -= 1
            _discount(self.classic_protocols, [name for name, _ in member.classic.offers])
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        for partition in (*member.assigned, *member.revoking):
            # The next owner may have it already.
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Tells whether anything about the subscribed topics has changed that assignments depend on."""
    known = sorted(name for name in names if name in topics.topics)
    if not known:
        return NO_HASH
    digest = blake2b(digest_size=8)
    for name in known:
        topic = topics.topics[name]
        digest.update(topic.topic_id + topic.partitions.to_bytes(4) + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), signed=True)


def _epoch_name(member: ConsumerMember) -> str:
    return "member epoch" if member.classic is None else "generation id"


def _stale(member: ConsumerMember, message: str) -> KafkaError:
    """An epoch that is not the member's, in the words of the protocol it speaks."""
    error = Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
    return KafkaError(error, message)


def _discount(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]


def _existing(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _of(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """The group; the first record that is not a tombstone creates it."""
    group = _existing(shard, group_id)
    if group is None:
        group = shard.groups[group_id] = ConsumerGroup(group_id)
    return group


@replays(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue)
def _replay_epoch(
    shard: GroupShard,
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        group = _of(shard, key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif _existing(shard, key.group_id) is not None:
        del shard.groups[key.group_id]


@replays(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue)
def _replay_subscription(
    shard: GroupShard,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        group = _of(shard, key.group_id)
        group.put(_known(group, key.member_id).with_subscription(value))
    elif (known := _existing(shard, key.group_id)) is not None:
        known.remove(key.member_id)


@replays(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue)
def _replay_assignment(
    shard: GroupShard,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        group = _of(shard, key.group_id)
        group.put(_known(group, key.member_id).with_assignment(value))
    elif (known := _existing(shard, key.group_id)) is not None and key.member_id in known.members:
        known.put(known.members[key.member_id].without_assignment())


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Of a member's records, compaction may leave either one as the first."""
    return group.members.get(member_id) or ConsumerMember(member_id)


@replays(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue)
def _replay_target_epoch(
    shard: GroupShard,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        group = _of(shard, key.group_id)
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


@replays(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue)
def _replay_target(
    shard: GroupShard,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        _of(shard, key.group_id).targets[key.member_id] = frozenset(
            (topic.topic_id, index) for topic in value.topic_partitions for index in topic.partitions
        )
    elif (known := _existing(shard, key.group_id)) is not None:
        known.targets.pop(key.member_id, None)


@replays(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue)
def _replay_regex(
    shard: GroupShard,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
    origin: Origin,
) -> None:
    if value is not None:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        _of(shard, key.group_id).resolved[key.regular_expression] = resolved
    elif (known := _existing(shard, key.group_id)) is not None:
        known.resolved.pop(key.regular_expression, None)
