"""A change of a consumer group in the making: its records, and what the group will be with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from millrace.coordinator.records import StateRecord
from millrace.groups.assignors.spec import NO_PARTITIONS, Assign, MemberSpec, Partition
from millrace.groups.consumer import ConsumerGroup, ResolvedRegex, metadata_hash
from millrace.groups.consumer_member import ConsumerMember, by_topic
from millrace.groups.group import Topics
from millrace.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

NEVER_MS = 0
"""The time of a target assignment that was not made here, so that the next one need not wait."""

NamesOf = Callable[[ConsumerMember], Iterable[str]]


class Draft:
    """Collects records; the group itself stays as it is until they are replayed."""

    def __init__(self, group: ConsumerGroup, topics: Topics, records: Sequence[StateRecord] = ()) -> None:
        self.group = group
        self.records = list(records)
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self._topics = topics
        # What differs from the group; None stands for what will be gone.
        self._members: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, frozenset[Partition]] = {}
        self._resolved: dict[str, ResolvedRegex | None] = {}

    # Reading

    @property
    def members(self) -> Iterator[ConsumerMember]:
        for member_id, member in self.group.members.items():
            if member_id not in self._members:
                yield member
        for changed in self._members.values():
            if changed is not None:
                yield changed

    def target_of(self, member_id: str) -> frozenset[Partition]:
        target = self._targets.get(member_id)
        return self.group.target_of(member_id) if target is None else target

    def regex_topics(self, regex: str) -> frozenset[str]:
        """The topics that a regular expression matches; none until it has been resolved."""
        resolved = self._resolved[regex] if regex in self._resolved else self.group.resolved.get(regex)
        return frozenset() if resolved is None else resolved.topics

    def regexes(self) -> set[str]:
        return set(self._counted(self.group.regexes, lambda member: filter(None, (member.topic_regex,))))

    def topic_names(self) -> set[str]:
        """Every topic that a member is subscribed to, whether it exists or not."""
        names = set(self._counted(self.group.names, lambda member: member.topic_names))
        return names.union(*map(self.regex_topics, self.regexes()))

    def _counted(self, counter: Counter[str], names_of: NamesOf) -> Iterator[str]:
        counts = counter.copy()
        for member_id, after in self._members.items():
            before = self.group.members.get(member_id)
            if before is not None:
                counts.subtract(names_of(before))
            if after is not None:
                counts.update(names_of(after))
        return (name for name, count in counts.items() if count > 0)

    def topic_ids(self, member: ConsumerMember) -> frozenset[bytes]:
        """The topics a member is subscribed to, of those that exist."""
        known = self._topics.topics
        names = member.topic_names | self.regex_topics(member.topic_regex)
        return frozenset(known[name].topic_id for name in names if name in known)

    # Members

    def subscribe(self, member: ConsumerMember) -> None:
        """A member is new, or has something new to say of itself."""
        self._members[member.member_id] = member
        self.records.append(member.subscription_record(self.group.group_id))

    def advance(self, member: ConsumerMember) -> None:
        """A member has come closer to its target."""
        self._members[member.member_id] = member
        self.records.append(member.assignment_record(self.group.group_id))

    def remove(self, member: ConsumerMember) -> None:
        group_id, member_id = self.group.group_id, member.member_id
        self._members[member_id] = None
        self._targets[member_id] = NO_PARTITIONS
        self.records += (
            StateRecord(key, None)
            for key in (
                ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
                ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
                ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
            )
        )

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member comes back under another id, and takes up what it had."""
        target = self.target_of(old.member_id)
        self.remove(old)
        self.subscribe(new)
        self._set_target(new.member_id, target)
        self.advance(new)

    def found(self, members: Sequence[ConsumerMember], epoch: int) -> None:
        """Begin a group with members that have their partitions already, which are their targets as well."""
        for member in members:
            self.subscribe(member)
        self._begin_epoch(epoch)
        for member in members:
            self._set_target(member.member_id, frozenset(member.assigned))
        self._set_assignment_epoch(NEVER_MS)
        for member in members:
            self.advance(member)

    # Regular expressions

    def resolve(self, regex: str, resolved: ResolvedRegex) -> None:
        self._resolved[regex] = resolved
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
        self.records.append(StateRecord(self._regex_key(regex), value))

    def drop_unused_regexes(self, regexes: Iterable[str]) -> None:
        """Forget the expressions that no member uses any more."""
        used = self.regexes()
        for regex in regexes:
            if regex not in used and regex in self.group.resolved:
                self._resolved[regex] = None
                self.records.append(StateRecord(self._regex_key(regex), None))

    def _regex_key(self, regex: str) -> ConsumerGroupRegularExpressionKey:
        return ConsumerGroupRegularExpressionKey(group_id=self.group.group_id, regular_expression=regex)

    # Epochs

    def bump(self) -> None:
        """Begin the group's next epoch, which needs a new target assignment."""
        self._begin_epoch(self.group.epoch + 1)

    def bump_if_topics_changed(self) -> None:
        if metadata_hash(self._topics, self.topic_names()) != self.group.metadata_hash:
            self.bump()

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        key = ConsumerGroupMetadataKey(group_id=self.group.group_id)
        value = ConsumerGroupMetadataValue(
            epoch=epoch, metadata_hash=metadata_hash(self._topics, self.topic_names())
        )
        self.records.append(StateRecord(key, value))

    def retarget(self, assign: Assign, now_ms: int) -> None:
        """Make the target assignment for the group's epoch; only what differs is written."""
        specs = self._specs()
        known = self._topics.by_id
        subscribed = frozenset[bytes]().union(*(spec.topics for spec in specs.values()))
        counts = {topic_id: known[topic_id].partitions for topic_id in subscribed}
        for member_id, target in assign(specs, counts).items():
            is_new = member_id not in self.group.targets and member_id not in self._targets
            if is_new or target != specs[member_id].target:
                self._set_target(member_id, target)
        self._set_assignment_epoch(now_ms)

    def _set_assignment_epoch(self, now_ms: int) -> None:
        self.assignment_epoch = self.epoch
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group.group_id)
        value = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=self.epoch, assignment_timestamp=now_ms
        )
        self.records.append(StateRecord(key, value))

    def _specs(self) -> dict[str, MemberSpec]:
        # Most members of a group are subscribed to the same.
        topics: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        specs = {}
        for member in self.members:
            subscription = member.topic_names, member.topic_regex
            if subscription not in topics:
                topics[subscription] = self.topic_ids(member)
            target = self.target_of(member.member_id)
            specs[member.member_id] = MemberSpec(topics[subscription], target, member.instance_id)
        return specs

    def _set_target(self, member_id: str, target: frozenset[Partition]) -> None:
        self._targets[member_id] = target
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self.group.group_id, member_id=member_id)
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(target).items()
            ]
        )
        self.records.append(StateRecord(key, value))
