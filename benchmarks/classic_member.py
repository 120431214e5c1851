"""A member of a classic group over its own connection: what it says to its coordinator, and no more."""

import struct
from collections.abc import Sequence

from benchmarks.wire_client import WireClient, expect_success
from millrace.errors import Error
from millrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millrace.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from millrace.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

# The versions that librdkafka speaks, but for leaving: that one names the member in a list.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 3
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
NULL_BYTES = -1


class ClassicMember:
    """Joins a group, is given partitions, and answers to rebalances."""

    def __init__(self, client: WireClient, group: str, topic: str) -> None:
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self._client = client
        self._group = group
        self._topic = topic

    async def join(self) -> None:
        """Join or rejoin, until the group is balanced with this member in it."""
        while True:
            joined = await self._client.ask(self._join_request(), JoinGroupResponse, JOIN_VERSION)
            if joined.error_code == Error.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            expect_success(joined.error_code)
            self.member_id, self.generation = joined.member_id, joined.generation_id
            synced = await self._client.ask(self._sync_request(joined), SyncGroupResponse, SYNC_VERSION)
            if synced.error_code == Error.REBALANCE_IN_PROGRESS:
                continue
            expect_success(synced.error_code)
            self.assignment = synced.assignment
            return

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_subscription(self._topic))],
        )

    def _sync_request(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        """The leader, who alone is told the members, gives each a partition."""
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=_assignment(self._topic, partition)
                )
                for partition, member in enumerate(joined.members)
            ],
        )

    async def heartbeat(self) -> bool:
        """Whether the group stays as it is; where not, it is time to join again."""
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        response = await self._client.ask(request, HeartbeatResponse, HEARTBEAT_VERSION)
        if response.error_code == Error.REBALANCE_IN_PROGRESS:
            return False
        expect_success(response.error_code)
        return True


async def leave(client: WireClient, group: str, member_ids: Sequence[str]) -> None:
    """Take members out of their group, through any connection."""
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    request = LeaveGroupRequest(group_id=group, members=members)
    response = await client.ask(request, LeaveGroupResponse, LEAVE_VERSION)
    expect_success(response.error_code)


def _subscription(topic: str) -> bytes:
    """Version 0 of the consumers' own protocol: topics and user data."""
    return struct.pack(">hi", 0, 1) + _text(topic) + struct.pack(">i", NULL_BYTES)


def _assignment(topic: str, partition: int) -> bytes:
    """Version 0 of the consumers' own protocol: partitions by topic and user data."""
    return struct.pack(">hi", 0, 1) + _text(topic) + struct.pack(">iii", 1, partition, NULL_BYTES)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
