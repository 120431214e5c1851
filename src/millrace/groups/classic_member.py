"""A member of a classic group: who it is, how long it may be silent, what it offers and what it was given."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from millrace.wire.messages.describe_groups import DescribedGroupMember
from millrace.wire.messages.group_records import MemberMetadata
from millrace.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

NO_ASSIGNMENT = b""
# Records of old brokers have no rebalance timeout.
NO_REBALANCE_TIMEOUT = -1

Offers = tuple[tuple[str, bytes], ...]
"""The protocols (consumers: assignors) a member speaks, its favourite first, with its metadata for each."""


def offers_of(protocols: Iterable[JoinGroupRequestProtocol]) -> Offers:
    # A name that comes twice counts once: each member has one voice.
    return tuple({protocol.name: protocol.metadata for protocol in protocols}.items())


class Client(NamedTuple):
    """Who sends a request, and in which version of it."""

    client_id: str
    host: str
    api_version: int


@dataclass(slots=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    offers: Offers
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Whether it has not yet been told of its first generation, so that it cannot heartbeat."""

    @classmethod
    def from_record(cls, record: MemberMetadata, protocol: str | None) -> Self:
        """A member as it was in a stable generation: of its offers only the chosen one was kept."""
        timeout_ms = record.rebalance_timeout
        return cls(
            member_id=record.member_id,
            group_instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.session_timeout if timeout_ms == NO_REBALANCE_TIMEOUT else timeout_ms,
            session_timeout_ms=record.session_timeout,
            offers=((protocol or "", record.subscription),),
            assignment=record.assignment,
        )

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol) or b"",
            assignment=assignment,
        )

    def metadata(self, protocol: str | None) -> bytes | None:
        """What the member says under a protocol; None where it does not speak it."""
        return next((metadata for name, metadata in self.offers if name == protocol), None)

    def vote(self, candidates: Container[str]) -> str:
        """Its favourite among protocols that everybody speaks."""
        return next(name for name, _ in self.offers if name in candidates)

    def joined(self, protocol: str | None) -> JoinGroupResponseMember:
        """The member as the leader is told of it."""
        return JoinGroupResponseMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            metadata=self.metadata(protocol) or b"",
        )

    def describe(self, protocol: str | None = None) -> DescribedGroupMember:
        """The member as tools see it; its metadata only under a protocol."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.metadata(protocol) or b"",
            member_assignment=self.assignment,
        )
