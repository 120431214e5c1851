"""A classic group: members that join generation after generation, and a leader that assigns the work.

One record keeps it, written when a generation is stable or the group has become empty. In between, while
members join and wait for their assignments, the group is ahead of its record and lives in memory only. After
a crash its members find their last stable generation, and join again from there.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from enum import StrEnum

from millrace.coordinator.records import Origin, StateRecord
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.classic_member import NO_ASSIGNMENT, Member
from millrace.groups.classic_requests import JoinResult, Offers, SyncResult
from millrace.groups.group import CONSUMER_PROTOCOL_TYPE, Commit, Group
from millrace.groups.shard import GroupShard, replays
from millrace.wire.codec import decode
from millrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from millrace.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

logger = logging.getLogger(__name__)

# v3 has static members; the flexible v4 is for brokers to come.
VALUE_VERSION = 3
NO_TIMESTAMP = -1
# Behind the version of the subscription; v0 is the beginning of every later one.
SUBSCRIPTION_POSITION = 2


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are joining the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined and wait for what the leader assigns."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or gone over to another protocol."""


class ClassicGroup(Group):
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

        # What the record keeps.
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.state_since_ms: int | None = None
        self._protocol_type = ""
        self._state = State.EMPTY

        # Of the members.
        self._static: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self._topics: set[str] | None = None

        # Only in memory: a rebalance under way.
        self.pending: set[str] = set()
        """Ids handed out to members that are to join with them (KIP-394)."""
        self.parked_joins: dict[str, Deferred[JoinResult]] = {}
        self.parked_syncs: dict[str, Deferred[SyncResult]] = {}
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.is_initial_rebalance = False
        """Whether it was empty before: it then waits for more members even if all it knows are here."""
        self.grew = False
        """Whether a member joined since the initial rebalance was last extended."""

    # What every group tells

    @property
    def kind(self) -> str:
        return "classic"

    @property
    def state(self) -> State:
        return self._state

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def is_empty(self) -> bool:
        return self._state is State.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self._protocol_type == CONSUMER_PROTOCOL_TYPE

    def validate_commit(self, commit: Commit) -> None:
        is_member = commit.generation >= 0 or commit.member_id or commit.group_instance_id is not None
        if commit.generation < 0 and self.is_empty:
            # An admin client, or a consumer that uses no group management.
            return
        if is_member:
            self.validate_member(commit.member_id, commit.group_instance_id)
            if commit.generation != self.generation:
                raise KafkaError(Error.ILLEGAL_GENERATION)
        elif not commit.is_transactional and not self.is_empty:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        if not commit.is_transactional and self._state is State.COMPLETING_REBALANCE:
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Every client may read the offsets of a classic group."""

    def validate_delete_offsets(self) -> None:
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(Error.NON_EMPTY_GROUP)

    def subscribed_topics(self) -> Collection[str] | None:
        # Members of other types, such as Connect's workers, do not subscribe to topics.
        return self._topics if self.uses_consumer_protocol else ()

    def offsets_idle_since(self, commit_timestamp_ms: int) -> int | None:
        if not self._protocol_type:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        knows_topics = self.uses_consumer_protocol and self._topics is not None
        return commit_timestamp_ms if knows_topics and self._state is State.STABLE else None

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(GroupMetadataKey(group=self.group_id), None)]

    @property
    def settled_protocol(self) -> str | None:
        """The protocol of a stable group; None while its members have not settled on one."""
        return self.protocol if self._state is State.STABLE else None

    # Members

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise unless it is a member, and not one whose instance id a newer member has taken over."""
        if group_instance_id is not None:
            current = self._static.get(group_instance_id)
            if current is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(Error.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        return None if group_instance_id is None else self._static.get(group_instance_id)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self._protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._index(member)
        self.pending.discard(member.member_id)

    def update(
        self, member: Member, offers: Offers, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._support.subtract(name for name, _ in member.offers)
        member.offers = offers
        self._support.update(name for name, _ in offers)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> None:
        """Remove a member, or a client that was about to become one."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._support.subtract(name for name, _ in member.offers)
            if member.group_instance_id is not None:
                self._static.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.parked_joins.pop(member_id, None)
        self.parked_syncs.pop(member_id, None)
        self.unsynced.discard(member_id)
        self.pending.discard(member_id)

    def replace(self, old_id: str, member: Member) -> None:
        """Give the place of a static member to its restarted process."""
        self._support.subtract(name for name, _ in self.members[old_id].offers)
        self.members = {known.member_id: known for known in self._members_with(old_id, member)}
        self._index(member)
        if self.leader == old_id:
            self.leader = member.member_id

    def _members_with(self, old_id: str, member: Member) -> list[Member]:
        return [member if known.member_id == old_id else known for known in self.members.values()]

    def _index(self, member: Member) -> None:
        self._support.update(name for name, _ in member.offers)
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that a rebalance waits: the longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def supports(self, protocol_type: str, offers: Offers) -> bool:
        """Whether a client with these offers can join. All members must speak one of the protocols."""
        if self.is_empty:
            return bool(protocol_type and offers)
        return protocol_type == self._protocol_type and any(
            self._is_spoken_by_all(name) for name, _ in offers
        )

    def _is_spoken_by_all(self, protocol: str) -> bool:
        return self._support[protocol] == len(self.members)

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all of them speak."""
        candidates = {name for name in self._support if self._is_spoken_by_all(name)}
        return _most_votes(self.members.values(), candidates)

    def keeps_protocol_with(self, old_id: str, member: Member) -> bool:
        """Whether the protocol would be the same if a static member were replaced."""
        members = self._members_with(old_id, member)
        support = Counter(name for known in members for name, _ in known.offers)
        candidates = {name for name, count in support.items() if count == len(members)}
        return _most_votes(members, candidates) == self.protocol

    # Generations

    def move_to(self, state: State, now_ms: int) -> None:
        self._state = state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self._state in (State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE)

    @property
    def all_joined(self) -> bool:
        return not self.pending and len(self.parked_joins) == len(self.members)

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, or choose a member that has; False if none has."""
        if self.leader in self.parked_joins:
            return True
        joined = next((member_id for member_id in self.members if member_id in self.parked_joins), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def begin_generation(self, now_ms: int) -> None:
        """Make the members that have joined the next generation."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self._topics = self._find_topics()
        self.move_to(State.COMPLETING_REBALANCE, now_ms)
        self.unsynced = set(self.members)

    def _find_topics(self) -> set[str] | None:
        """The topics that consumers subscribe to; None if a subscription cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        try:
            return set().union(*map(self._topics_of, self.members.values()))
        except KafkaError as error:
            logger.warning("group %s: a subscription is not readable: %s", self.group_id, error)
            return None

    def _topics_of(self, member: Member) -> list[str]:
        metadata = member.metadata(self.protocol) or b""
        return decode(ConsumerProtocolSubscription, 0, metadata, SUBSCRIPTION_POSITION)[0].topics

    def joined(self, member_id: str) -> JoinResult:
        """The result of a join to this generation. The leader gets the members to assign work to."""
        members = self.members.values() if member_id == self.leader else ()
        return JoinResult(
            member_id=member_id,
            generation=self.generation,
            protocol_type=self._protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(member.joined(self.protocol) for member in members),
        )

    def synced(self, member_id: str) -> SyncResult:
        return SyncResult(
            protocol_type=self._protocol_type,
            protocol=self.protocol,
            assignment=self.members[member_id].assignment,
        )

    # The record

    def to_record(self) -> StateRecord:
        """The group as it is."""
        members = [member.to_record(self.protocol, member.assignment) for member in self.members.values()]
        return self._record(self.leader, members)

    def record_with_assignments(self, assignments: Mapping[str, bytes]) -> StateRecord:
        """The group as it will be when its members have new assignments."""
        members = [
            member.to_record(self.protocol, assignments.get(member.member_id, NO_ASSIGNMENT))
            for member in self.members.values()
        ]
        return self._record(self.leader, members)

    def record_with_member(self, old_id: str, member: Member) -> StateRecord:
        """The group as it will be when a static member is replaced."""
        members = self._members_with(old_id, member)
        record = self._record(
            member.member_id if self.leader == old_id else self.leader,
            [known.to_record(self.protocol, known.assignment) for known in members],
        )
        # The record has room for only one of the member's offers.
        return record._replace(unwritten=member)

    def without_members(self, now_ms: int) -> GroupMetadataValue:
        """The group as it will be when all members have left: empty, in the next generation."""
        return GroupMetadataValue(
            protocol_type=self._protocol_type,
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )

    def as_record(self, value: GroupMetadataValue) -> StateRecord:
        return StateRecord(GroupMetadataKey(group=self.group_id), value, VALUE_VERSION)

    def _record(self, leader: str | None, members: list[MemberMetadata]) -> StateRecord:
        value = GroupMetadataValue(
            protocol_type=self._protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=leader,
            current_state_timestamp=NO_TIMESTAMP if self.state_since_ms is None else self.state_since_ms,
            members=members,
        )
        return self.as_record(value)

    def replay(self, value: GroupMetadataValue, renewed: Member | None = None) -> None:
        """Become what a record says; `renewed` is the static member that it puts in another's place."""
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self._protocol_type = value.protocol_type
        since_ms = value.current_state_timestamp
        self.state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        if renewed is not None:
            self.members[renewed.member_id] = renewed
        self._replay_members(value.members)
        self._state = State.STABLE if self.members else State.EMPTY

    def _replay_members(self, records: Iterable[MemberMetadata]) -> None:
        members = [self._replayed(record) for record in records]
        self.members = {member.member_id: member for member in members}
        self._support.clear()
        self._static.clear()
        for member in members:
            self._index(member)
        self._topics = self._find_topics()

    def _replayed(self, record: MemberMetadata) -> Member:
        known = self.members.get(record.member_id)
        if known is None or known.metadata(self.protocol) != record.subscription:
            return Member.from_record(record, self.protocol)
        # The record keeps one offer of the member. The group knows all of them.
        known.assignment = record.assignment
        return known

    def die(self) -> None:
        self._state = State.DEAD


def _most_votes(members: Iterable[Member], candidates: Container[str]) -> str:
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


def new_group_record(group_id: str, now_ms: int) -> StateRecord:
    """The record that creates an empty group, for its first member to join."""
    group = ClassicGroup(group_id)
    group.state_since_ms = now_ms
    return group.to_record()


@replays(GroupMetadataKey, GroupMetadataValue)
def _replay_group(
    shard: GroupShard, key: GroupMetadataKey, value: GroupMetadataValue | None, origin: Origin
) -> None:
    known = shard.groups.get(key.group)
    classic = known if isinstance(known, ClassicGroup) else None
    if value is not None:
        classic = shard.groups[key.group] = classic or ClassicGroup(key.group)
        classic.replay(value, origin.unwritten if isinstance(origin.unwritten, Member) else None)
    elif classic is not None:
        classic.die()
        del shard.groups[key.group]
