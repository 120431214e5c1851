"""A group coordinator without network and without waiting, and members that talk to it."""

import asyncio
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.classic import ClassicGroup
from millrace.groups.classic_requests import JoinRequest, MemberIdentity, SyncRequest, SyncResult
from millrace.groups.group import Client
from millrace.testing import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.testing.timers import ManualTimers
from millrace.wire.codec import encode
from millrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription

from ..node import Node, finish

GROUP = "readers"
INITIAL_DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
# Versions of JoinGroup.
MEMBER_ID_REQUIRED_FROM, SKIP_ASSIGNMENT_FROM = 4, 9


def subscription(*topics: str, version: int = 0) -> bytes:
    value = ConsumerProtocolSubscription(topics=list(topics))
    return struct.pack(">h", version) + encode(value, version)


class Coordinator:
    """The broker's groups on a data directory, with time that passes when told."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        self.disk = FaultyDisk()
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self._node = Node(directory, disk=self.disk, clock=self.clock, timers=self.timers)
        self._properties = {"offsets.topic.num.partitions": "2", **(properties or {})}
        self._open()

    def _open(self) -> None:
        self.timers.cancel_all()
        self.cluster = self._node.open(self._properties)
        self.groups = self.cluster.node.groups
        finish(self.groups.runtime.ensure_topic())

    @property
    def group(self) -> ClassicGroup:
        group = self.groups.find(GROUP)
        assert isinstance(group, ClassicGroup)
        return group

    def restart(self, properties: dict[str, str] | None = None) -> None:
        """Come back as after kill -9: from what is in the log."""
        self._properties |= properties or {}
        self.kill()
        self._open()
        asyncio.run(self.groups.runtime.load())

    def kill(self) -> None:
        self._node.kill()

    def advance(self, milliseconds: int) -> None:
        self.timers.advance(milliseconds)

    def join_all(self, *members: "Member") -> None:
        """Let members join until all of them are in the same generation."""
        answers = [member.enter() for member in members]
        if not answers[0].arrived:
            self.advance(INITIAL_DELAY_MS if len(members) == 1 else 2 * INITIAL_DELAY_MS)
        assert [answer.error for answer in answers] == [Error.NONE] * len(members)

    def stabilize(self, *members: "Member") -> None:
        """Let members join, and their leader give each an assignment of its own."""
        self.join_all(*members)
        self.sync_all(*members)

    def sync_all(self, *members: "Member") -> None:
        answers = [member.sync() for member in members if not member.is_leader]
        (leader,) = (member for member in members if member.is_leader)
        answers.append(leader.assign(members))
        assert [answer.error for answer in answers] == [Error.NONE] * len(members)
        assert self.group.state == "Stable"


class Answer:
    """The response to a request, once it has arrived."""

    def __init__(self) -> None:
        self.arrived = False
        self.response: Any = None
        self._error = Error.NONE

    def take(self, outcome: Any) -> Self:
        if isinstance(outcome, Deferred):
            outcome.then(self.set)
        else:
            self.set(outcome)
        return self

    def set(self, response: Any) -> None:
        assert not self.arrived
        if isinstance(response, KafkaError):
            self.fail(response.error)
            return
        self.arrived = True
        self.response = response
        self._error = response.error

    def fail(self, error: Error) -> None:
        self.arrived = True
        self._error = error

    @property
    def error(self) -> Error:
        assert self.arrived, "no answer has come yet"
        return self._error


class Member:
    """One process that takes part in the group."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        topics: Iterable[str] = ("orders",),
        assignors: Iterable[str] = ("range",),
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        client_id: str = "reader",
    ) -> None:
        self._coordinator = coordinator
        self.group_id = group_id
        self.instance = instance
        self.offers = [(name, subscription(*topics)) for name in assignors]
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocol_type = protocol_type
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.known: list[str] = []
        self.assignment: bytes | None = None

    def join(self) -> Answer:
        request = JoinRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            offers=tuple(self.offers),
            asks_for_id=self.version >= MEMBER_ID_REQUIRED_FROM,
            can_skip_assignment=self.version >= SKIP_ASSIGNMENT_FROM,
        )
        client = Client(self.client_id, "/127.0.0.1")
        answer = _Joined(self)
        try:
            return answer.take(self._coordinator.groups.classic.join(client, request))
        except KafkaError as error:
            answer.fail(error.error)
            return answer

    def enter(self) -> Answer:
        """Join as clients do: those of our time first ask for an id."""
        answer = self.join()
        if answer.arrived and answer.error is Error.MEMBER_ID_REQUIRED:
            answer = self.join()
        return answer

    def sync(
        self,
        assignments: dict[str, bytes] | None = None,
        *,
        protocol: tuple[str | None, str | None] | None = None,
    ) -> Answer:
        protocol_type, protocol_name = protocol or (None, None)
        request = SyncRequest(
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=protocol_type,
            protocol=protocol_name,
            assignments=assignments or {},
        )
        answer = _Synced(self)
        try:
            return answer.take(self._coordinator.groups.classic.sync(request))
        except KafkaError as error:
            answer.fail(error.error)
            return answer

    def assign(self, members: Iterable["Member"]) -> Answer:
        """As the leader, give every member something of its own."""
        return self.sync({member.member_id: member.work for member in members})

    @property
    def work(self) -> bytes:
        return b"work of " + self.member_id.encode()

    def heartbeat(self) -> Error:
        member = MemberIdentity(self.member_id, self.instance)
        try:
            self._coordinator.groups.classic.heartbeat(self.group_id, member, self.generation)
        except KafkaError as error:
            return error.error
        return Error.NONE

    def leave(self) -> Error:
        leaver = MemberIdentity(self.member_id, self.instance)
        (error,) = self._coordinator.groups.classic.leave(self.group_id, [leaver])
        return error

    def restarted(self) -> "Member":
        """The same process after a restart: it knows its instance id, but not its member id."""
        again = Member(self._coordinator, instance=self.instance, version=self.version)
        again.offers, again.protocol_type = self.offers, self.protocol_type
        again.session_ms, again.rebalance_ms = self.session_ms, self.rebalance_ms
        return again


class _Joined(Answer):
    def __init__(self, member: Member) -> None:
        super().__init__()
        self._member = member

    def set(self, response: Any) -> None:
        super().set(response)
        if self.error in (Error.NONE, Error.MEMBER_ID_REQUIRED):
            self._member.member_id = response.member_id
            self._member.generation = response.generation
            self._member.is_leader = response.leader == response.member_id
            self._member.known = [known.member_id for known in response.members]


class _Synced(Answer):
    def __init__(self, member: Member) -> None:
        super().__init__()
        self._member = member

    def set(self, response: SyncResult) -> None:
        super().set(response)
        if self.error is Error.NONE:
            self._member.assignment = response.assignment
