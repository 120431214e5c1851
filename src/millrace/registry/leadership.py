"""The leader of several registries, elected through Kafka's group protocol as Confluent's registries do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from millrace.client import Client, security_of
from millrace.client.group_member import REJOIN, GroupMember
from millrace.errors import KafkaError

logger = logging.getLogger(__name__)

PROTOCOL_TYPE, PROTOCOL = "sr", "v0"
HEARTBEAT_SECONDS = 1.0
SESSION_MS = 10_000
_PAUSE_SECONDS = 1.0
_VERSION = 1


class Identity(NamedTuple):
    """The address under which a registry is reached by the others."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.to_json())

    def to_json(self) -> dict[str, object]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
        }

    @classmethod
    def decoded(cls, data: bytes) -> Identity:
        """Read the metadata of a member. Raises ValueError."""
        try:
            read = msgspec.json.decode(data)
            return cls(
                str(read["host"]),
                int(read["port"]),
                str(read.get("scheme", "http")),
                bool(read.get("master_eligibility", True)),
            )
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"unreadable member: {error}") from error


Elected = Callable[[Identity | None, bool], Awaitable[None]]
"""Gets the leader and whether it is this registry; None while an election is under way."""


class Leadership:
    """Keeps this registry in the group, and reports who leads."""

    def __init__(
        self, bootstrap: str, group: str, identity: Identity, elected: Elected, properties: Mapping[str, str]
    ) -> None:
        self._bootstrap, self._group = bootstrap, group
        self._security = security_of(properties)
        self._identity = identity
        self._elected = elected
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Leave the group, so that another registry leads at once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                async with Client(
                    self._bootstrap, client_id="millrace-registry", security=self._security
                ) as client:
                    await self._take_part(client)
            except KafkaError as error:
                logger.warning("election of the registries' leader fails: %s; trying again", error)
                await self._elected(None, False)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _take_part(self, client: Client) -> None:
        member = GroupMember(
            client, self._group, protocol_type=PROTOCOL_TYPE, protocol=PROTOCOL, session_timeout_ms=SESSION_MS
        )
        try:
            while True:
                try:
                    assigned = await member.join(self._identity.encoded(), assign)
                    leader_id, leader = decoded_assignment(assigned.assignment)
                    while True:
                        # Reported again and again: a leader that failed to take over tries again.
                        await self._elected(leader, leader_id == member.member_id)
                        await asyncio.sleep(HEARTBEAT_SECONDS)
                        await member.heartbeat()
                except KafkaError as error:
                    if error.error not in REJOIN:
                        raise
                    # The leader goes on while others join: its writes are fenced if it is replaced.
        finally:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(2):
                    await member.leave()


def assign(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Choose the leader: the eligible member with the lowest address, so that every election agrees."""
    candidates = []
    for member_id, metadata in members.items():
        try:
            identity = Identity.decoded(metadata)
        except ValueError as error:
            logger.warning("member %s of the registries is ignored: %s", member_id, error)
            continue
        if identity.eligible:
            candidates.append((identity.url, member_id, identity))
    chosen: dict[str, object] = {"version": _VERSION, "error": 0, "master": None, "master_identity": None}
    if candidates:
        _, member_id, identity = min(candidates)
        chosen |= {"master": member_id, "master_identity": identity.to_json()}
    encoded = msgspec.json.encode(chosen)
    return dict.fromkeys(members, encoded)


def decoded_assignment(data: bytes) -> tuple[str | None, Identity | None]:
    """The member id and the address of the leader; None if no member may lead."""
    try:
        read = msgspec.json.decode(data)
        identity = read.get("master_identity")
        if not read.get("master") or not identity:
            return None, None
        return read["master"], Identity.decoded(msgspec.json.encode(identity))
    except (msgspec.DecodeError, AttributeError, ValueError) as error:
        logger.warning("the assignment of the registries is unreadable: %s", error)
        return None, None
