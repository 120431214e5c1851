"""ConsumerGroupHeartbeat (KIP-848): members of consumer groups join, get partitions and leave."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.coordinator.runtime import Runtime
from millrace.errors import Error, KafkaError
from millrace.groups.assignors import ASSIGNORS
from millrace.groups.assignors.spec import Assign
from millrace.groups.classic import ClassicGroup
from millrace.groups.classic_protocol import ClassicProtocol
from millrace.groups.consumer import ConsumerGroup, ResolvedRegex
from millrace.groups.consumer_member import (
    AWAY_EPOCH,
    LEFT_EPOCH,
    NEW_EPOCH,
    NO_TIMEOUT,
    ConsumerMember,
    MemberState,
)
from millrace.groups.consumer_request import Heartbeat, HeartbeatResult, check_epoch, check_heartbeat
from millrace.groups.consumer_sessions import GroupConfigOf, Sessions
from millrace.groups.draft import Draft
from millrace.groups.group import Client, Topics
from millrace.groups.reconciliation import Owned, Target, reconcile
from millrace.groups.shard import GroupShard
from millrace.groups.subscriptions import RegexChange, change_of, match, needs_resolving
from millrace.groups.upgrade import can_downgrade, downgrade, upgrade
from millrace.timers import Timers
from millrace.wire.codec import MalformedMessage
from millrace.wire.schema import uuid_to_text

logger = logging.getLogger(__name__)

# A member that waits for partitions sends heartbeats sooner than its interval says.
WAITING_INTERVAL_MS = 500


class ConsumerProtocol:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        runtime: Runtime[GroupShard],
        classic: ClassicProtocol,
        *,
        topics: Topics,
        config: BrokerConfig,
        group_config: GroupConfigOf,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.topics = topics
        self.config = config
        self.rebalances = 0
        """New epochs of groups, each of which brings a new assignment."""
        self.sessions = Sessions(
            lambda group_id, member_id, reason: self.fence(group_id, [member_id], reason),
            group_config=group_config,
            timers=timers,
        )
        self._group_config = group_config
        self._runtime = runtime
        self._classic = classic
        self._clock = clock
        self._timers = timers

    def on_loaded(self, shard: GroupShard) -> None:
        """Start the sessions of members of groups that were loaded from the log."""
        for group in list(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                self.sessions.start(group)
                self.downgrade_if_due(group)

    def on_unloaded(self, shard: GroupShard) -> None:
        """Another coordinator watches the members from now on."""
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                self._timers.cancel(_regexes_key(group.group_id))
                for member_id in group.members:
                    self.sessions.end(group.group_id, member_id)

    # Heartbeats

    def heartbeat(self, client: Client, heartbeat: Heartbeat) -> HeartbeatResult:
        """Take a heartbeat: a member joins, moves on to the next epoch, or leaves."""
        check_heartbeat(heartbeat, self.config.group_consumer_assignors)
        if heartbeat.member_epoch in (LEFT_EPOCH, AWAY_EPOCH):
            return self._leave(heartbeat)
        draft = self._open(heartbeat)
        member_id = heartbeat.member_id or uuid_to_text(uuid.uuid4().bytes)
        self.check_room(draft.group, member_id)
        before = self._find_or_join(draft, heartbeat, member_id)
        after = _updated(before, client, heartbeat)
        if after is not before:
            draft.subscribe(after)
        regex_change = change_of(draft.group, before, after)
        if before.topic_regex != after.topic_regex:
            draft.drop_unused_regexes((before.topic_regex,))
        reconciled = self.advance(draft, before, after, heartbeat.owned, regex_change)
        group = self.write(draft)
        group.seen_topics_version = self.topics.version
        self.sessions.keep_alive(group.group_id, reconciled)
        if reconciled is not after:
            self.sessions.watch_revocation(group.group_id, reconciled)
        self._resolve_later(group)
        is_told = heartbeat.is_full or reconciled.assigned.keys() != before.assigned.keys()
        return HeartbeatResult(
            reconciled.member_id,
            reconciled.epoch,
            self._interval_ms(group, reconciled),
            reconciled.assigned if is_told else None,
        )

    def _open(self, heartbeat: Heartbeat) -> Draft:
        """The group. A member that joins may create it, or take it over from the classic protocol."""
        group_id = heartbeat.group_id
        group = self._runtime.shard_of(group_id).groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(group, self.topics)
        if heartbeat.member_epoch != NEW_EPOCH:
            raise _not_found(group_id, exists=group is not None)
        if group is None:
            return Draft(ConsumerGroup(group_id), self.topics)
        if group.is_empty:
            return Draft(ConsumerGroup(group_id), self.topics, group.tombstones())
        if isinstance(group, ClassicGroup):
            return upgrade(group, self.topics, self.config)
        raise _not_found(group_id, exists=True)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self.config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                Error.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _find_or_join(self, draft: Draft, heartbeat: Heartbeat, member_id: str) -> ConsumerMember:
        """The member as it is before this heartbeat; a new one is blank."""
        group = draft.group
        if heartbeat.instance_id is not None:
            return self._find_or_join_static(draft, heartbeat, member_id, heartbeat.instance_id)
        if heartbeat.member_epoch == NEW_EPOCH:
            return group.members.get(member_id) or _joined(group, ConsumerMember(member_id))
        member = group.member(member_id)
        check_epoch(member, heartbeat)
        return member

    def _find_or_join_static(
        self, draft: Draft, heartbeat: Heartbeat, member_id: str, instance_id: str
    ) -> ConsumerMember:
        group = draft.group
        known = group.static_member(instance_id)
        if heartbeat.member_epoch != NEW_EPOCH:
            known = check_static(known, member_id, instance_id)
            check_epoch(known, heartbeat)
            return known
        if known is None:
            return group.members.get(member_id) or _joined(group, ConsumerMember(member_id))
        if known.member_id == member_id:
            # The response to its first join was lost.
            return known
        if known.classic is None and known.epoch != AWAY_EPOCH:
            raise KafkaError(
                Error.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {known.member_id} member.",
            )
        return self.replace_static(draft, known, member_id)

    def replace_static(self, draft: Draft, known: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a static member that restarted take over its partitions."""
        renewed = replace(known, member_id=member_id, epoch=NEW_EPOCH, previous_epoch=NEW_EPOCH)
        draft.replace(known, renewed)
        return _joined(draft.group, renewed)

    def advance(
        self,
        draft: Draft,
        before: ConsumerMember,
        after: ConsumerMember,
        owned: Owned,
        regex_change: RegexChange,
    ) -> ConsumerMember:
        """Act on a heartbeat or join: raise the epoch, assign, and bring the member closer to its target."""
        group = draft.group
        names_changed = after.topic_names != before.topic_names
        if names_changed or regex_change is RegexChange.RESOLVED or group.epoch == 0:
            draft.bump()
        elif group.seen_topics_version != self.topics.version:
            draft.bump_if_topics_changed()
        if draft.epoch > draft.assignment_epoch and self._may_assign(group):
            self._retarget(draft)
        subscription_changed = names_changed or regex_change is not RegexChange.NONE
        if not subscription_changed and after.is_reconciled_to(draft.assignment_epoch):
            return after
        reconciled = reconcile(
            after,
            Target(draft.assignment_epoch, draft.target_of(after.member_id)),
            topics=draft.topic_ids(after),
            taken=group.owners,
            owned=owned,
            subscription_changed=subscription_changed,
        )
        if reconciled == after:
            return after
        draft.advance(reconciled)
        return reconciled

    def _may_assign(self, group: ConsumerGroup) -> bool:
        """Whether the interval is over: members that join or leave together share an assignment."""
        interval_ms = self._group_config(group.group_id).consumer_assignment_interval_ms
        since_ms = group.assignment_timestamp_ms
        return not since_ms or self._clock.now_ms() >= since_ms + interval_ms

    def _retarget(self, draft: Draft) -> None:
        name, assign = self._assignor(draft.members)
        draft.retarget(assign, self._clock.now_ms())
        logger.info("group %s: epoch %d has an assignment (%s)", draft.group.group_id, draft.epoch, name)

    def assignor_name(self, group: ConsumerGroup) -> str:
        """The assignor that most members ask for."""
        return self._assignor(group.members.values())[0]

    def _assignor(self, members: Iterable[ConsumerMember]) -> tuple[str, Assign]:
        votes = Counter(member.server_assignor for member in members if member.server_assignor)
        offered = self.config.group_consumer_assignors
        name = next((name for name, _ in votes.most_common() if name in offered), offered[0])
        return name, ASSIGNORS[name]

    def _interval_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        is_waiting = (
            group.epoch > group.assignment_epoch
            or member.state is MemberState.UNRELEASED_PARTITIONS
            or (member.topic_regex and member.topic_regex not in group.resolved)
        )
        interval_ms = self._group_config(group.group_id).consumer_heartbeat_interval_ms
        return min(interval_ms, WAITING_INTERVAL_MS) if is_waiting else interval_ms

    # Writing

    def write(self, draft: Draft) -> ConsumerGroup:
        """Make a draft last; the group that it is part of from then on."""
        group_id = draft.group.group_id
        shard = self._runtime.shard_of(group_id)
        old = shard.groups.get(group_id)
        is_new_epoch = draft.epoch > draft.group.epoch
        if draft.records:
            self._runtime.write(group_id, lambda _: (draft.records, None))
        group = shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        if is_new_epoch:
            self.rebalances += 1
            logger.info("group %s: epoch %d with %d members", group_id, group.epoch, len(group.members))
        if isinstance(old, ClassicGroup):
            self._take_over(old, group)
        return group

    def _take_over(self, old: ClassicGroup, group: ConsumerGroup) -> None:
        with self._classic.rebalances.replies:
            self._classic.rebalances.abandon(old, Error.REBALANCE_IN_PROGRESS)
        self.sessions.start(group)
        logger.info("group %s: went over from the classic to the consumer protocol", group.group_id)

    # Regular expressions

    def _resolve_later(self, group: ConsumerGroup) -> None:
        """Match expressions apart from the heartbeat that asks for it: there may be many topics."""
        if needs_resolving(group, self.topics.version, self._clock.now_ms()):
            group_id = group.group_id
            self._timers.schedule(_regexes_key(group_id), 0, lambda: self._resolve(group_id))

    def _resolve(self, group_id: str) -> None:
        group = self._runtime.shard_of(group_id).groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not group.regexes:
            return
        draft = Draft(group, self.topics)
        version, now_ms = self.topics.version, self._clock.now_ms()
        changed = False
        for regex, topics in match(group.regexes, self.topics.topics).items():
            changed |= topics != draft.regex_topics(regex)
            draft.resolve(regex, ResolvedRegex(topics, version, now_ms))
        if changed:
            draft.bump()
            self._retarget(draft)
        try:
            self.write(draft)
        except KafkaError as error:
            logger.warning("group %s: its topics cannot be written: %s", group_id, error)
            return
        group.resolved_topics_version = version

    # Leaving

    def _leave(self, heartbeat: Heartbeat) -> HeartbeatResult:
        group_id, member_id, instance_id = heartbeat.group_id, heartbeat.member_id, heartbeat.instance_id
        group = self._runtime.shard_of(group_id).groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(group_id, exists=group is not None)
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), member_id, instance_id)
        if instance_id is not None and heartbeat.member_epoch == AWAY_EPOCH:
            # Its partitions wait for it as long as its session lasts.
            draft = Draft(group, self.topics)
            draft.advance(replace(member, epoch=AWAY_EPOCH, revoking={}))
            self.write(draft)
        else:
            self.fence(group.group_id, [member.member_id], "it has left")
        return HeartbeatResult(member_id, heartbeat.member_epoch)

    def fence(self, group_id: str, member_ids: Iterable[str], reason: str) -> None:
        """Take members out of a group; what they had is free at once."""
        group = self._runtime.shard_of(group_id).groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        members = [group.members[member_id] for member_id in member_ids if member_id in group.members]
        if not members:
            return
        draft = Draft(group, self.topics)
        for member in members:
            draft.remove(member)
        draft.drop_unused_regexes({member.topic_regex for member in members})
        draft.bump()
        self.write(draft)
        for member in members:
            logger.info("group %s: member %s is out: %s", group_id, member.member_id, reason)
            self.sessions.end(group_id, member.member_id)
        self.downgrade_if_due(group)

    def downgrade_if_due(self, group: ConsumerGroup) -> None:
        """Turn a group back whose members all speak the classic protocol."""
        if not can_downgrade(group, self.config):
            return
        group_id, member_ids = group.group_id, list(group.members)
        try:
            records = downgrade(group, self.topics, self._clock.now_ms())
            shard = self._runtime.shard_of(group_id)
            self._runtime.write(group_id, lambda _: (records, None))
        except (KafkaError, MalformedMessage) as error:
            logger.warning("group %s: cannot go over to the classic protocol: %s", group_id, error)
            return
        logger.info("group %s: went over from the consumer to the classic protocol", group_id)
        for member_id in member_ids:
            self.sessions.end(group_id, member_id)
        classic = shard.groups[group_id]
        assert isinstance(classic, ClassicGroup)
        self._classic.start_sessions(classic)
        with self._classic.rebalances.replies:
            self._classic.rebalances.prepare(classic, "the group went over to the classic protocol")


def _regexes_key(group_id: str) -> tuple[str, str]:
    return "consumer-regexes", group_id


def check_static(known: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member. Raises KafkaError if it is unknown or another member has its instance id."""
    if known is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise KafkaError(
            Error.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by "
            f"member {known.member_id}.",
        )
    return known


def _joined(group: ConsumerGroup, member: ConsumerMember) -> ConsumerMember:
    logger.info("group %s: member %s joins", group.group_id, member.member_id)
    return member


def _updated(member: ConsumerMember, client: Client, heartbeat: Heartbeat) -> ConsumerMember:
    """The member with what is new in its heartbeat; in most, nothing is."""
    told: dict[str, Any] = {
        "client_id": client.client_id,
        "client_host": client.host,
        "classic": None,
    }
    if heartbeat.instance_id is not None:
        told["instance_id"] = heartbeat.instance_id
    if heartbeat.rack_id is not None:
        told["rack_id"] = heartbeat.rack_id
    if heartbeat.rebalance_timeout_ms != NO_TIMEOUT:
        told["rebalance_timeout_ms"] = heartbeat.rebalance_timeout_ms
    if heartbeat.server_assignor is not None:
        told["server_assignor"] = heartbeat.server_assignor
    if heartbeat.topic_names is not None:
        told["topic_names"] = frozenset(heartbeat.topic_names)
    if heartbeat.topic_regex is not None:
        told["topic_regex"] = heartbeat.topic_regex
    changes = {name: value for name, value in told.items() if getattr(member, name) != value}
    return replace(member, **changes) if changes else member


def _not_found(group_id: str, *, exists: bool) -> KafkaError:
    what = f"Group {group_id} is not a consumer group." if exists else f"Consumer group {group_id} not found."
    return KafkaError(Error.GROUP_ID_NOT_FOUND, what)
