"""Members of the consumer protocol, which revoke before they take as clients do, and their coordinator."""

import uuid
from typing import Any

from millrace.errors import KafkaError
from millrace.groups.assignors.spec import Partition
from millrace.groups.consumer import ConsumerGroup
from millrace.groups.consumer_request import Heartbeat, HeartbeatResult
from millrace.groups.group import Client

from ..node import OpenNode
from .members import GROUP, REBALANCE_MS, Coordinator

SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
ASSIGNMENT_INTERVAL_MS = 1_000


def group_of(coordinator: Coordinator) -> ConsumerGroup:
    group = coordinator.groups.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def cluster_of(coordinator: Coordinator) -> OpenNode:
    return coordinator.cluster


def topic_id(coordinator: Coordinator, name: str = "orders") -> bytes:
    return cluster_of(coordinator).topics[name].topic_id


def settle(coordinator: Coordinator, *members: "Consumer", rounds: int = 12) -> None:
    """Let members heartbeat in turn until nothing changes any more."""
    for _ in range(rounds):
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
        for member in members:
            member.beat()
    assert group_of(coordinator).state == "Stable"


class Consumer:
    """One process that takes part in the group, by the consumer protocol."""

    def __init__(
        self,
        coordinator: Coordinator,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 1,
    ) -> None:
        self._coordinator = coordinator
        self.topics = list(topics) or ([] if regex else ["orders"])
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.member_id = str(uuid.uuid4()) if version >= 1 else ""
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.interval_ms = 0
        self._told: set[Partition] | None = None

    def send(self, **fields: Any) -> HeartbeatResult:
        """Send a heartbeat as it is; raises what the coordinator raises."""
        heartbeat = Heartbeat(
            **{
                "group_id": GROUP,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance,
                "makes_own_id": self.version >= 1,
                **fields,
            }
        )
        return self._coordinator.groups.consumer.heartbeat(Client("reader", "/127.0.0.1"), heartbeat)

    def join(self) -> HeartbeatResult:
        self.epoch, self.owned = 0, set()
        return self.beat(full=True)

    def beat(self, *, full: bool = False, lose_answer: bool = False) -> HeartbeatResult:
        """Send what a client sends, and do what it is told; what it owns it tells only when that changes."""
        fields: dict[str, Any] = {}
        if full or self._told is None:
            fields = {
                "rebalance_timeout_ms": self.rebalance_ms,
                "topic_names": self.topics,
                "topic_regex": self.regex,
                "server_assignor": self.assignor,
            }
        if full or self.owned != self._told:
            fields["owned"] = set(self.owned)
            self._told = set(self.owned)
        response = self.send(**fields)
        if lose_answer:
            # After a failure a client tells everything again.
            self._told = None
            return response
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.interval_ms = response.interval_ms
        if response.assignment is not None:
            self.owned = set(response.assignment)
        return response

    def resubscribe(self, *topics: str, regex: str | None = None) -> None:
        self.topics, self.regex = list(topics), regex
        self._told = None

    def leave(self, epoch: int = -1) -> None:
        self.send(member_epoch=epoch)
        self.owned = set()

    def restarted(self) -> "Consumer":
        """The same process after a restart: it knows its instance id, but not its member id."""
        return Consumer(self._coordinator, *self.topics, regex=self.regex, instance=self.instance)

    @property
    def indexes(self) -> list[int]:
        return sorted(index for _, index in self.owned)

    def error(self, **fields: Any) -> KafkaError:
        """The error that the coordinator raises for a heartbeat."""
        try:
            self.send(**fields)
        except KafkaError as error:
            return error
        raise AssertionError("the heartbeat was accepted")
