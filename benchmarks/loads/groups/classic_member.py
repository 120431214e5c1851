"""A member of a classic group over its own connection: only its requests to the coordinator."""

from collections.abc import Sequence

from millrace.client import Connection
from millrace.errors import Error, check
from millrace.wire.codec import encode
from millrace.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
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

# librdkafka's versions, except for leaving: version 3 lists several members.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 3
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
# The consumers' own protocol writes its version before each message.
VERSION_0 = bytes(2)


class ClassicMember:
    """Joins a group, gets partitions, and takes part in rebalances."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self._connection = connection
        self._group = group
        self._topic = topic

    async def join(self) -> None:
        """Join or rejoin, until this member has its assignment."""
        while True:
            joined = await self._connection.send_in(JOIN_VERSION, self._join_request(), JoinGroupResponse)
            if joined.error_code == Error.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            check(joined.error_code)
            self.member_id, self.generation = joined.member_id, joined.generation_id
            synced = await self._connection.send_in(
                SYNC_VERSION, self._sync_request(joined), SyncGroupResponse
            )
            if synced.error_code == Error.REBALANCE_IN_PROGRESS:
                continue
            check(synced.error_code)
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
        """The leader, which alone gets the member list, assigns a partition to each member."""
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
        """Whether the generation is still current; if not, join again."""
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        response = await self._connection.send_in(HEARTBEAT_VERSION, request, HeartbeatResponse)
        if response.error_code == Error.REBALANCE_IN_PROGRESS:
            return False
        check(response.error_code)
        return True


async def leave(connection: Connection, group: str, member_ids: Sequence[str]) -> None:
    """Remove members from their group, over any connection."""
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    request = LeaveGroupRequest(group_id=group, members=members)
    response = await connection.send_in(LEAVE_VERSION, request, LeaveGroupResponse)
    check(response.error_code)


def _subscription(topic: str) -> bytes:
    return encode(ConsumerProtocolSubscription(topics=[topic]), 0, VERSION_0)


def _assignment(topic: str, partition: int) -> bytes:
    assigned = [TopicPartition(topic=topic, partitions=[partition])]
    return encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 0, VERSION_0)
