"""The interface that every kind of group has towards offsets, lists and tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from millrace.coordinator.records import StateRecord

CONSUMER_PROTOCOL_TYPE = "consumer"


class TopicFacts(Protocol):
    """The facts about a topic that groups need."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> int: ...


class Topics(Protocol):
    """The facts about the cluster that groups need."""

    @property
    def topics(self) -> Mapping[str, TopicFacts]: ...
    @property
    def by_id(self) -> Mapping[bytes, TopicFacts]: ...
    @property
    def version(self) -> int:
        """Another number whenever a topic has come, gone or grown."""


class Client(NamedTuple):
    """The sender of a request."""

    client_id: str
    host: str


class Commit(NamedTuple):
    """The sender of an offset commit: a member in its generation or epoch, or another client (-1, no id)."""

    member_id: str
    group_instance_id: str | None
    generation: int
    """Or, in a group of the consumer protocol, the member's epoch."""
    knows_epochs: bool = True
    """Whether the request is of a version for the consumer protocol, in which a group may be missing."""
    is_transactional: bool = False


class Group(ABC):
    """One group. What must last changes only by replaying records; timers and parked replies are its own."""

    group_id: str

    @property
    @abstractmethod
    def kind(self) -> str:
        """The type as ListGroups tells it: "classic" or "consumer"."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The state as ListGroups and DescribeGroups tell it, such as "Stable"."""

    @property
    @abstractmethod
    def protocol_type(self) -> str: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members: only then may it be deleted."""

    @abstractmethod
    def validate_commit(self, commit: Commit) -> None:
        """Raise what Kafka raises for a commit that is stale, foreign or untimely."""

    def validate_committed(self, commit: Commit, partitions: Iterable[tuple[bytes, int]]) -> None:
        """Raise for partitions, by topic id, that this member may not commit offsets of (or no longer)."""
        return

    @abstractmethod
    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise what Kafka raises when a member asks for offsets in an epoch that is not its own."""

    @abstractmethod
    def validate_delete_offsets(self) -> None:
        """Raise what Kafka raises when offsets of this group may not be deleted now."""

    @abstractmethod
    def subscribed_topics(self) -> Collection[str] | None:
        """The topics its members are subscribed to; None where that cannot be known."""

    @abstractmethod
    def offsets_idle_since(self, commit_timestamp_ms: int) -> int | None:
        """From when on an offset of an unsubscribed topic ages; None while its group keeps it alive."""

    @abstractmethod
    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group itself."""
