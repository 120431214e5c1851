"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests of members of classic groups."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.coordinator.runtime import Runtime
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.classic import ClassicGroup, State, new_group_record
from millrace.groups.classic_member import Member
from millrace.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalances
from millrace.groups.classic_requests import (
    Join,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    Sync,
    SyncRequest,
    SyncResult,
)
from millrace.groups.group import Client, Group
from millrace.groups.shard import GroupShard
from millrace.timers import Timers


class OtherProtocol(Protocol):
    """Handles requests of classic members of a group that uses another protocol."""

    def join(self, group: Group, client: Client, request: JoinRequest) -> Join: ...

    def sync(self, group: Group, request: SyncRequest) -> Sync: ...

    def heartbeat(self, group: Group, member: MemberIdentity, generation: int) -> None: ...

    def leave(self, group: Group, leavers: Sequence[MemberIdentity]) -> list[Error]: ...


class ClassicProtocol:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self, runtime: Runtime[GroupShard], *, config: BrokerConfig, clock: Clock, timers: Timers
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._clock = clock
        self.rebalances = Rebalances(runtime, config=config, clock=clock, timers=timers)
        self.other_protocol: OtherProtocol | None = None

    # Starting

    def on_loaded(self, shard: GroupShard) -> None:
        """Start the sessions of the members of loaded groups."""
        for group in list(shard.groups.values()):
            if isinstance(group, ClassicGroup):
                self.start_sessions(group)

    def on_unloaded(self, shard: GroupShard) -> None:
        """Answer parked requests with NOT_COORDINATOR: their members find the new coordinator."""
        with self.rebalances.replies:
            for group in shard.groups.values():
                if isinstance(group, ClassicGroup):
                    self.rebalances.abandon(group, Error.NOT_COORDINATOR)

    def start_sessions(self, group: ClassicGroup) -> None:
        with self.rebalances.replies:
            for member in group.members.values():
                self.rebalances.extend_session(group, member)
            if len(group.members) > self._config.group_max_size:
                self.rebalances.prepare(group, "the group is larger than it may be")

    # Joining

    def join(self, client: Client, request: JoinRequest) -> Join:
        """Let a member join a group or its next generation. Raises KafkaError if the join is rejected."""
        self._check_group_id(request.group_id)
        timeout_ms = request.session_timeout_ms
        shortest_ms = self._config.group_min_session_timeout_ms
        if not shortest_ms <= timeout_ms <= self._config.group_max_session_timeout_ms:
            raise KafkaError(Error.INVALID_SESSION_TIMEOUT)
        with self.rebalances.replies:
            group = self._group_to_join(request)
            if isinstance(group, ClassicGroup):
                return self._join(group, client, request)
            if self.other_protocol is None:
                raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
            return self.other_protocol.join(group, client, request)

    def _group_to_join(self, request: JoinRequest) -> Group:
        """The group to join. If it is missing, or empty and of another type, a new group takes its place."""
        group_id = request.group_id
        group = self._find(group_id)
        if group is not None and (isinstance(group, ClassicGroup) or not group.is_empty):
            return group
        if request.member_id:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        records = [] if group is None else group.tombstones()
        records.append(new_group_record(group_id, self._clock.now_ms()))

        self._runtime.write(group_id, lambda _: (records, None))
        return self._runtime.shard_of(group_id).groups[group_id]

    def _join(self, group: ClassicGroup, client: Client, request: JoinRequest) -> Join:
        if not self._has_room(group, request.member_id):
            self._turn_away(group, request.member_id)
            return JoinResult(Error.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, request.offers):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            return self._join_with_id(group, client, request)
        if request.group_instance_id is not None:
            return self._join_static(group, client, request, request.group_instance_id)
        member_id = new_member_id(client.client_id)
        if not request.asks_for_id:
            return self._add(group, client, request, member_id)
        # A client that lost the answer to its first join would otherwise leave a member behind.
        group.pending.add(member_id)
        self.rebalances.expect(group, member_id, request.session_timeout_ms)
        return JoinResult(Error.MEMBER_ID_REQUIRED, member_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            # Members that have joined count: the last to join a group that is too large are left out.
            return member_id in group.parked_joins or len(group.parked_joins) < self._config.group_max_size
        return member_id in group.members or len(group.members) < self._config.group_max_size

    def _turn_away(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self.rebalances.end_session(group, member_id)
        self.rebalances.complete_if_due(group)

    def _join_with_id(self, group: ClassicGroup, client: Client, request: JoinRequest) -> Join:
        member_id = request.member_id
        if member_id in group.pending:
            if request.group_instance_id is not None:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a static member does not join with a given id")
            return self._add(group, client, request, member_id)
        group.validate_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        if self._is_up_to_date(group, member, request):
            return group.joined(member_id)
        self._update(group, member, request)
        return self._park(group, member_id, f"member {member_id} joins again: {_reason(request.reason)}")

    def _is_up_to_date(self, group: ClassicGroup, member: Member, request: JoinRequest) -> bool:
        """Whether a member only missed what it was told, or wants nothing but its assignment."""
        if member.offers != request.offers:
            return False
        if group.state is State.STABLE:
            # A leader joins again if the assignment has to change, for new partitions for example.
            return member.member_id != group.leader
        return group.state is State.COMPLETING_REBALANCE

    def _add(self, group: ClassicGroup, client: Client, request: JoinRequest, member_id: str) -> Join:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            offers=request.offers,
            is_new=True,
        )
        group.grew = True
        group.add(member, request.protocol_type)
        self.rebalances.extend_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._park(group, member_id, f"member {member_id} joins: {_reason(request.reason)}")

    def _park(self, group: ClassicGroup, member_id: str, reason: str) -> Deferred[JoinResult]:
        """The answer comes when the joining ends, which may be now."""
        parked: Deferred[JoinResult] = Deferred()
        group.parked_joins[member_id] = parked
        self.rebalances.prepare_or_complete(group, reason)
        return parked

    # Joining as a static member

    def _join_static(
        self, group: ClassicGroup, client: Client, request: JoinRequest, group_instance_id: str
    ) -> Join:
        """A process without a member id takes the place of the member that had its instance id before."""
        member_id = new_member_id(group_instance_id)
        old_id = group.static_member_id(group_instance_id)
        if old_id is None:
            return self._add(group, client, request, member_id)
        renewed = replace(
            group.members[old_id],
            member_id=member_id,
            offers=request.offers,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )
        if group.state is not State.STABLE or not group.keeps_protocol_with(old_id, renewed):
            group.replace(old_id, renewed)
            self._end_predecessor(group, old_id, renewed)
            return self._park(group, member_id, f"static member {group_instance_id} was restarted")
        old_leader = group.leader or ""
        try:
            self.rebalances.write(group, group.record_with_member(old_id, renewed))
        except KafkaError as error:
            return replace(group.joined(""), error=error.error, leader=old_leader)
        self._end_predecessor(group, old_id, renewed)
        joined = group.joined(member_id)
        if request.can_skip_assignment:
            return replace(joined, skip_assignment=member_id == group.leader)
        # A leader that does not know `skip_assignment` takes itself for a follower.
        return replace(joined, leader=old_leader, members=())

    def _end_predecessor(self, group: ClassicGroup, old_id: str, renewed: Member) -> None:
        """Refuse the requests of a static member's former process, and begin a session with the new one."""
        replies = self.rebalances.replies
        waiting = group.parked_joins.pop(old_id, None)
        if waiting is not None:
            replies.add(group.group_id, waiting, JoinResult(Error.FENCED_INSTANCE_ID, old_id))
        parked = group.parked_syncs.pop(old_id, None)
        if parked is not None:
            replies.add(group.group_id, parked, SyncResult(Error.FENCED_INSTANCE_ID))
        if old_id in group.unsynced:
            group.unsynced.remove(old_id)
            group.unsynced.add(renewed.member_id)
        self.rebalances.end_session(group, old_id)
        self.rebalances.extend_session(group, renewed)

    def _update(self, group: ClassicGroup, member: Member, request: JoinRequest) -> None:
        group.update(member, request.offers, request.rebalance_timeout_ms, request.session_timeout_ms)

    # Syncing

    def sync(self, request: SyncRequest) -> Sync:
        """Get the assignment of a member, once the leader has brought the assignments."""
        group = self._group_of_member(request.group_id)
        if not isinstance(group, ClassicGroup):
            return self._other_protocol().sync(group, request)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation != group.generation:
            raise KafkaError(Error.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol, group.protocol):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)
        with self.rebalances.replies:
            return self._sync(group, request)

    def _sync(self, group: ClassicGroup, request: SyncRequest) -> Sync:
        self.rebalances.note_sync(group, request.member_id)
        if group.state is State.STABLE:
            return group.synced(request.member_id)
        parked = group.parked_syncs[request.member_id] = Deferred()
        if request.member_id == group.leader:
            self.rebalances.settle(group, request.assignments)
        return parked

    # Heartbeats

    def heartbeat(self, group_id: str, member: MemberIdentity, generation: int) -> None:
        """Extend the session of a member; raises KafkaError if it has to join again."""
        self._check_group_id(group_id)
        group = self._find(group_id)
        if group is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            self._other_protocol().heartbeat(group, member, generation)
            return
        group.validate_member(*member)
        if generation != group.generation:
            raise KafkaError(Error.ILLEGAL_GENERATION)
        self.rebalances.extend_session(group, group.members[member.member_id])
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)

    # Leaving

    def leave(self, group_id: str, leavers: Sequence[MemberIdentity]) -> list[Error]:
        """Take members out of a group; the outcome of each."""
        self._check_group_id(group_id)
        group = self._find(group_id)
        if group is None:
            return [Error.UNKNOWN_MEMBER_ID] * len(leavers)
        if not isinstance(group, ClassicGroup):
            return self._other_protocol().leave(group, leavers)
        with self.rebalances.replies:
            outcomes = [self._leave(group, leaver) for leaver in leavers]
            if Error.NONE in outcomes and not group.is_empty:
                self.rebalances.prepare_or_complete(group, "members have left")
            return outcomes

    def _leave(self, group: ClassicGroup, leaver: MemberIdentity) -> Error:
        if leaver.member_id in group.pending:
            self.rebalances.drop_pending(group, leaver.member_id)
            return Error.NONE
        try:
            # An administrator removes a static member by its instance id alone.
            member_id = leaver.member_id or group.static_member_id(leaver.group_instance_id) or ""
            group.validate_member(member_id, leaver.group_instance_id)
        except KafkaError as error:
            return error.error
        self.rebalances.dismiss(group, group.members[member_id])
        return Error.NONE

    # Finding

    def _check_group_id(self, group_id: str) -> None:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)

    def _find(self, group_id: str) -> Group | None:
        return self._runtime.shard_of(group_id).groups.get(group_id)

    def _group_of_member(self, group_id: str) -> Group:
        self._check_group_id(group_id)
        group = self._find(group_id)
        if group is None or group.is_empty:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        return group

    def _other_protocol(self) -> OtherProtocol:
        if self.other_protocol is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        return self.other_protocol


def new_member_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"


def _differ(asked: str | None, chosen: str | None) -> bool:
    """Old clients do not say what they take for the group's protocol."""
    return asked is not None and chosen is not None and asked != chosen


def _reason(reason: str | None) -> str:
    return reason or "it gives no reason"
