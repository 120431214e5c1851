"""Membership in a group with a protocol of its own, beside the consumers that client libraries have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from millrace.client.client import Client
from millrace.client.connection import Connection
from millrace.client.locations import CoordinatorType
from millrace.client.outcomes import Outcomes
from millrace.errors import Error, KafkaError, check
from millrace.wire.messages import heartbeat as heartbeat_api
from millrace.wire.messages import join_group as join_api
from millrace.wire.messages import leave_group as leave_api
from millrace.wire.messages import sync_group as sync_api

T = TypeVar("T")

_NO_GENERATION = -1
# From this version on, a request names members in a list.
_SEVERAL_MEMBERS_VERSION = 3

# The member has to join again.
REJOIN = frozenset((Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID))

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Turns the metadata of all members into the assignment of each; the leader of the group runs it."""


class Assigned(NamedTuple):
    """The outcome of a rebalance."""

    generation: int
    assignment: bytes


class GroupMember:
    """A member of a group. Join, then send heartbeats; join again when one raises an error of REJOIN.

    The client must be the member's own: a join waits for the other members, and requests behind it wait too.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        protocol_type: str,
        protocol: str,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        self.member_id = ""
        self._client = client
        self._group = group
        self._protocol_type, self._protocol = protocol_type, protocol
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._generation = _NO_GENERATION

    async def join(self, metadata: bytes, assign: Assign) -> Assigned:
        """Take part in a rebalance. Raises KafkaError."""
        try:
            joined = await self._call(lambda connection: self._join(connection, metadata))
            self._generation = joined.generation_id
            by_member: Mapping[str, bytes] = {}
            if joined.leader == self.member_id:
                by_member = assign({member.member_id: member.metadata for member in joined.members})
            synced = await self._call(lambda connection: self._sync(connection, by_member))
        except KafkaError as error:
            self._forget(error)
            raise
        return Assigned(self._generation, synced.assignment)

    async def _join(self, connection: Connection, metadata: bytes) -> join_api.JoinGroupResponse:
        for _ in range(2):
            request = join_api.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                member_id=self.member_id,
                protocol_type=self._protocol_type,
                protocols=[join_api.JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)],
            )
            response = await connection.send(request, join_api.JoinGroupResponse)
            if response.error_code != Error.MEMBER_ID_REQUIRED:
                break
            self.member_id = response.member_id
        check(response.error_code)
        self.member_id = response.member_id
        return response

    async def _sync(
        self, connection: Connection, by_member: Mapping[str, bytes]
    ) -> sync_api.SyncGroupResponse:
        request = sync_api.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            assignments=[
                sync_api.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in by_member.items()
            ],
        )
        response = await connection.send(request, sync_api.SyncGroupResponse)
        check(response.error_code)
        return response

    async def heartbeat(self) -> None:
        """Tell the coordinator that the member lives. Raises KafkaError."""

        async def beat(connection: Connection) -> None:
            request = heartbeat_api.HeartbeatRequest(
                group_id=self._group, generation_id=self._generation, member_id=self.member_id
            )
            check((await connection.send(request, heartbeat_api.HeartbeatResponse)).error_code)

        try:
            await self._call(beat)
        except KafkaError as error:
            self._forget(error)
            raise

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end."""

        async def leave(connection: Connection) -> None:
            version = connection.version_of(leave_api.LeaveGroupRequest) or 0
            request = leave_api.LeaveGroupRequest(
                group_id=self._group,
                member_id=self.member_id if version < _SEVERAL_MEMBERS_VERSION else "",
                members=[leave_api.MemberIdentity(member_id=self.member_id)],
            )
            check((await connection.send(request, leave_api.LeaveGroupResponse)).error_code)

        if self.member_id:
            await self._call(leave)
            self.member_id = ""

    def _forget(self, error: KafkaError) -> None:
        """Forget an identity that the group no longer knows."""
        if error.error is Error.UNKNOWN_MEMBER_ID:
            self.member_id, self._generation = "", _NO_GENERATION

    async def _call(self, call: Callable[[Connection], Awaitable[T]]) -> T:
        async def about_group(connection: Connection, _: list[str]) -> Outcomes[str, T]:
            return Outcomes({self._group: await call(connection)})

        outcomes = await self._client.call_coordinators(CoordinatorType.GROUP, [self._group], about_group)
        return outcomes[self._group]
