"""Requests of members of classic groups and their results, independent of the versions on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace.deferred import Deferred
from millrace.errors import Error

Offers = tuple[tuple[str, bytes], ...]
"""The protocols (consumers: assignors) that a member speaks, best first, with its metadata for each."""

NO_GENERATION = -1


class MemberIdentity(NamedTuple):
    """The ids by which a member of a classic group is known. An administrator may know only the second."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join a group, or its next generation. New members have no id."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    offers: Offers
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str | None = None
    asks_for_id: bool = True
    """Whether a new member first gets its id, and then joins with it (KIP-394)."""
    can_skip_assignment: bool = True
    """Whether the member, as a leader, can be told to assign nothing (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as the leader learns of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The generation that a member has joined, or an error. Only the leader learns of the other members."""

    error: Error = Error.NONE
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A request for the assignment of a member; the leader brings those of all."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The assignment of a member, or an error."""

    error: Error = Error.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Join = JoinResult | Deferred[JoinResult]
Sync = SyncResult | Deferred[SyncResult]
