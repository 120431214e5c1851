"""A member of a classic group: its ids, timeouts, offers and assignment."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Self

from millrace.groups.classic_requests import JoinedMember, Offers
from millrace.wire.messages.group_records import MemberMetadata

NO_ASSIGNMENT = b""
# Records of old brokers have no rebalance timeout.
NO_REBALANCE_TIMEOUT = -1


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
        """The metadata of the member for a protocol; None if it does not speak the protocol."""
        return next((metadata for name, metadata in self.offers if name == protocol), None)

    def vote(self, candidates: Container[str]) -> str:
        """Its favourite among protocols that all members speak."""
        return next(name for name, _ in self.offers if name in candidates)

    def joined(self, protocol: str | None) -> JoinedMember:
        """The member as the leader learns of it."""
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol) or b"")
