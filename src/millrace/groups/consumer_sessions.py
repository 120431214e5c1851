"""Timeouts of members of consumer groups: for their next heartbeat, and for steps that they owe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

from millrace.config import GroupConfig
from millrace.errors import KafkaError
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_member import ConsumerMember, MemberState
from millrace.timers import Timers

logger = logging.getLogger(__name__)

RETRY_MS = 500

Fence = Callable[[str, str, str], None]
"""Takes a member out of a group: group id, member id, reason."""

GroupConfigOf = Callable[[str], GroupConfig]
"""The configuration of a group at present."""


class Wait(StrEnum):
    """The events that a member may owe; one timer each."""

    SESSION = "consumer-session"
    REVOCATION = "consumer-revocation"
    JOIN = "consumer-join"
    SYNC = "consumer-sync"


class Sessions:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, fence: Fence, *, group_config: GroupConfigOf, timers: Timers) -> None:
        self._fence = fence
        self._group_config = group_config
        self._timers = timers
        self._joins_owed: set[tuple[str, str]] = set()

    def start(self, group: ConsumerGroup) -> None:
        """Start the timeouts of all members of a group that was loaded from the log."""
        for member in group.members.values():
            self.keep_alive(group.group_id, member)
            self.watch_revocation(group.group_id, member)

    def end(self, group_id: str, member_id: str) -> None:
        for wait in Wait:
            self._timers.cancel((wait, group_id, member_id))
        self._joins_owed.discard((group_id, member_id))

    def keep_alive(self, group_id: str, member: ConsumerMember) -> None:
        """Restart the session timeout of a member. Classic members have chosen their own."""
        if member.classic is None:
            timeout_ms = self._group_config(group_id).consumer_session_timeout_ms
        else:
            timeout_ms = member.classic.session_timeout_ms
        self._expect(Wait.SESSION, group_id, member.member_id, timeout_ms, "its session timed out")

    def watch_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that has to give up partitions has its rebalance timeout for it."""
        if member.classic is not None:
            # It owes a join instead.
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._expect(
                Wait.REVOCATION,
                group_id,
                member.member_id,
                member.rebalance_timeout_ms,
                f"it did not give up its partitions and leave epoch {member.epoch} in time",
            )
        else:
            self._timers.cancel((Wait.REVOCATION, group_id, member.member_id))

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """Expect a classic member to join again. A time that runs already is not extended."""
        owed = group_id, member.member_id
        if owed not in self._joins_owed:
            self._joins_owed.add(owed)
            reason = "it did not join again in time"
            self._expect(Wait.JOIN, group_id, member.member_id, member.rebalance_timeout_ms, reason)

    def expect_sync(self, group_id: str, member: ConsumerMember) -> None:
        """Expect a classic member that has joined to ask for its assignment."""
        self._joins_owed.discard((group_id, member.member_id))
        self._timers.cancel((Wait.JOIN, group_id, member.member_id))
        reason = "it did not ask for its assignment in time"
        self._expect(Wait.SYNC, group_id, member.member_id, member.rebalance_timeout_ms, reason)

    def synced(self, group_id: str, member_id: str) -> None:
        self._timers.cancel((Wait.SYNC, group_id, member_id))

    def _expect(self, wait: Wait, group_id: str, member_id: str, timeout_ms: int, reason: str) -> None:
        key = wait, group_id, member_id

        def give_up() -> None:
            self._joins_owed.discard((group_id, member_id))
            try:
                self._fence(group_id, member_id, reason)
            except KafkaError as error:
                logger.warning("group %s: member %s cannot be removed: %s", group_id, member_id, error)
                self._timers.schedule(key, RETRY_MS, give_up)

        self._timers.schedule(key, timeout_ms, give_up)
