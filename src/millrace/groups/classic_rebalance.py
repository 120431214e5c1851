"""Rebalances of classic groups, from one generation to the next, and sessions of their members."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.coordinator.records import StateRecord
from millrace.coordinator.runtime import Runtime
from millrace.errors import Error, KafkaError
from millrace.groups.classic import ClassicGroup, State
from millrace.groups.classic_member import NO_ASSIGNMENT, Member
from millrace.groups.classic_requests import JoinResult, SyncResult
from millrace.groups.replies import Replies
from millrace.groups.shard import GroupShard
from millrace.timers import Timers

logger = logging.getLogger(__name__)

# New members cannot heartbeat while their first join is parked, and a client that gives up on it comes again
# under another id: the members that it leaves behind must not accumulate forever.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

Step = Callable[[], object]


class Rebalances:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self, runtime: Runtime[GroupShard], *, config: BrokerConfig, clock: Clock, timers: Timers
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._clock = clock
        self._timers = timers
        self.replies = Replies(runtime.settled)
        self.completed = 0
        """Rebalances that came to a stable generation."""

    # Joining

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Begin a rebalance: every member has to join again."""
        if group.state is State.COMPLETING_REBALANCE:
            self._withdraw(group, Error.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs(group)
        group.is_initial_rebalance = group.state is State.EMPTY
        group.grew = False
        group.move_to(State.PREPARING_REBALANCE, self._clock.now_ms())
        logger.info("group %s: rebalancing after generation %d: %s", group.group_id, group.generation, reason)
        if group.is_initial_rebalance:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_joined:
            self.complete(group)
        else:
            self._wait_for_joins(group)

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self.prepare(group, reason)
        else:
            self.complete_if_due(group)

    def complete_if_due(self, group: ClassicGroup) -> None:
        """End the joining once all members have joined. An initial rebalance always waits its full time."""
        if group.state is State.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
            self.complete(group)

    def complete(self, group: ClassicGroup) -> None:
        """Remove members that have not joined, and give the others their next generation."""
        self._timers.cancel(_join_key(group))
        self._drop_absent(group)
        if not group.members:
            self._become_empty(group)
        elif not group.elect_leader():
            # Only static members are left, and none has come back: their session timeouts will decide.
            self._wait_for_joins(group)
        else:
            group.begin_generation(self._clock.now_ms())
            self._announce(group)

    def _drop_absent(self, group: ClassicGroup) -> None:
        """Remove members that did not join in time, except static ones, which may come back."""
        absent = [
            member.member_id
            for member in group.members.values()
            if member.member_id not in group.parked_joins and member.group_instance_id is None
        ]
        for member_id in absent:
            logger.info("group %s: member %s did not join in time", group.group_id, member_id)
            group.remove(member_id)
            self.end_session(group, member_id)

    def _become_empty(self, group: ClassicGroup) -> None:
        emptied = group.without_members(self._clock.now_ms())
        try:
            self.write(group, group.as_record(emptied))
        except KafkaError as error:
            logger.warning("group %s: that it is empty could not be written: %s", group.group_id, error)
            # Nothing is lost: after a crash the last generation is back, and its members time out again.
            group.replay(emptied)

    def _announce(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            parked = group.parked_joins.pop(member.member_id, None)
            if parked is not None:
                self.replies.add(group.group_id, parked, group.joined(member.member_id))
            self.extend_session(group, member)
            member.is_new = False
        self._later(_sync_key(group), group.rebalance_timeout_ms, lambda: self._expire_syncs(group))

    def _wait_for_joins(self, group: ClassicGroup) -> None:
        self._later(_join_key(group), group.rebalance_timeout_ms, lambda: self.complete(group))

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Give a new group's other members time to come, again after each round in which one did."""

        def complete_or_wait() -> None:
            if not group.grew or not remaining_ms:
                self.complete(group)
                return
            group.grew = False
            next_delay_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_delay_ms, max(remaining_ms - delay_ms, 0))

        self._later(_join_key(group), delay_ms, complete_or_wait)

    # Assigning

    def settle(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Store the assignments of the leader and answer all members. If that fails, all join again."""
        try:
            self.write(group, group.record_with_assignments(assignments))
        except KafkaError as error:
            logger.warning("group %s: its assignment could not be written: %s", group.group_id, error)
            self._withdraw(group, error.error)
            self.prepare_or_complete(group, "the assignment could not be stored")
            return
        self.completed += 1
        logger.info(
            "group %s: generation %d is stable with %d members",
            group.group_id,
            group.generation,
            len(group.members),
        )
        self._answer_syncs(group, Error.NONE)

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.unsynced.discard(member_id)
        if not group.unsynced:
            self._timers.cancel(_sync_key(group))

    def _withdraw(self, group: ClassicGroup, error: Error) -> None:
        """Give up this generation: no member has an assignment."""
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        self._answer_syncs(group, error)

    def _answer_syncs(self, group: ClassicGroup, error: Error) -> None:
        for member_id, parked in group.parked_syncs.items():
            response = SyncResult(error) if error else group.synced(member_id)
            self.replies.add(group.group_id, parked, response)
            # Its session may have run out while it was waiting, which did not count.
            self.extend_session(group, group.members[member_id])
        group.parked_syncs.clear()

    def _stop_waiting_for_syncs(self, group: ClassicGroup) -> None:
        group.unsynced.clear()
        self._timers.cancel(_sync_key(group))

    def _expire_syncs(self, group: ClassicGroup) -> None:
        """Remove members that joined but never sent SyncGroup."""
        missing = set(group.unsynced)
        if not missing:
            return
        for member_id in missing:
            group.remove(member_id)
            self.end_session(group, member_id)
        self.prepare(group, f"{len(missing)} members did not ask for their assignment in time")

    # Sessions

    def extend_session(self, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """Restart the session timeout of a member."""
        self.expect(group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Expire a member, or a client with a pending member id, unless it is heard from within a time."""
        self._later(_heartbeat_key(group, member_id), timeout_ms, lambda: self._expire(group, member_id))

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(_heartbeat_key(group, member_id))

    def _expire(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending:
                group.pending.remove(member_id)
                self._complete_without(group)
            return
        is_waiting = member_id in group.parked_joins or member_id in group.parked_syncs
        if is_waiting and not member.is_new:
            # The broker owes it a response; its session restarts with that.
            return
        logger.info("group %s: the session of member %s timed out", group.group_id, member_id)
        self.dismiss(group, member)
        if group.state is State.PREPARING_REBALANCE:
            self._complete_without(group)
        else:
            self.prepare_or_complete(group, f"the session of member {member_id} timed out")

    def _complete_without(self, group: ClassicGroup) -> None:
        if group.state is State.PREPARING_REBALANCE and group.all_joined:
            self.complete(group)

    def drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Forget an id that was handed out and will not be used."""
        group.pending.discard(member_id)
        self.end_session(group, member_id)

    def dismiss(self, group: ClassicGroup, member: Member) -> None:
        """Remove a member. Its parked requests are answered so that it joins again if it is alive."""
        waiting = group.parked_joins.get(member.member_id)
        if waiting is not None:
            self.replies.add(group.group_id, waiting, JoinResult(Error.UNKNOWN_MEMBER_ID))
        parked = group.parked_syncs.get(member.member_id)
        if parked is not None:
            self.replies.add(group.group_id, parked, SyncResult(Error.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self.end_session(group, member.member_id)

    def abandon(self, group: ClassicGroup, error: Error) -> None:
        """Answer all parked requests and cancel all timers: the group ends, or changes its protocol."""
        for member_id, waiting in group.parked_joins.items():
            self.replies.add(group.group_id, waiting, JoinResult(error, member_id))
        for parked in group.parked_syncs.values():
            self.replies.add(group.group_id, parked, SyncResult(error))
        group.parked_joins.clear()
        group.parked_syncs.clear()
        for member_id in (*group.members, *group.pending):
            self.end_session(group, member_id)
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))

    # Means

    def write(self, group: ClassicGroup, record: StateRecord) -> None:
        self._runtime.write(group.group_id, lambda _: ([record], None))

    def _later(self, key: tuple[str, ...], delay_ms: int, step: Step) -> None:
        def take_step() -> None:
            with self.replies:
                step()

        self._timers.schedule(key, delay_ms, take_step)


def _heartbeat_key(group: ClassicGroup, member_id: str) -> tuple[str, ...]:
    return "heartbeat", group.group_id, member_id


def _join_key(group: ClassicGroup) -> tuple[str, ...]:
    return "join", group.group_id


def _sync_key(group: ClassicGroup) -> tuple[str, ...]:
    return "sync", group.group_id
