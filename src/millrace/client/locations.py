"""The brokers that are responsible: partition leaders, coordinators, the controller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from millrace.client.metadata import NO_NODE, TopicPartition
from millrace.client.outcomes import Outcomes
from millrace.errors import Error, KafkaError
from millrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from millrace.client.client import Client

K = TypeVar("K")

# From this version on, one request finds several coordinators.
FIND_SEVERAL_VERSION = 4

# Another broker is responsible by now, or this one is not ready yet.
PASSING = frozenset(
    {
        Error.CONCURRENT_TRANSACTIONS,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.LEADER_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.NOT_CONTROLLER,
        Error.NOT_COORDINATOR,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.OFFSET_NOT_AVAILABLE,
        Error.REPLICA_NOT_AVAILABLE,
        Error.UNKNOWN_LEADER_EPOCH,
    }
)


class CoordinatorType(IntEnum):
    """Kinds of coordinators."""

    GROUP = 0
    TRANSACTION = 1


class Locations(Protocol[K]):
    """Finds the broker that is responsible for each key, and remembers it."""

    passing: frozenset[Error]
    """Errors of the responsible brokers after which it is worth asking again."""

    async def find(self, keys: Collection[K]) -> Outcomes[K, int]:
        """The id of each key's broker."""

    def forget(self, keys: Collection[K]) -> None:
        """Find these again before the next use."""


class Leaders:
    """The leaders of partitions."""

    # A broker that the metadata calls the leader may learn of the topic a moment later.
    passing = PASSING | {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID}

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, keys: Collection[TopicPartition]) -> Outcomes[TopicPartition, int]:
        metadata = self._client.cluster
        if topics := metadata.topics_to_look_up(keys):
            await self._client.refresh(topics)
        found: Outcomes[TopicPartition, int] = Outcomes()
        for partition in keys:
            try:
                found.succeeded[partition] = metadata.leader(partition)
            except KafkaError as error:
                found.failed[partition] = error
        return found

    def forget(self, keys: Collection[TopicPartition]) -> None:
        self._client.cluster.forget(keys)


class Coordinators:
    """The coordinators of groups, or of transactional ids."""

    passing = PASSING

    def __init__(self, client: Client, key_type: CoordinatorType) -> None:
        self._client = client
        self._key_type = key_type
        self._known: dict[str, int] = {}

    async def find(self, keys: Collection[str]) -> Outcomes[str, int]:
        unknown = [key for key in keys if key not in self._known]
        found: Outcomes[str, int] = Outcomes()
        for coordinator in await self._look_up(unknown) if unknown else ():
            found.add(coordinator.key, coordinator.node_id, coordinator.error_code, coordinator.error_message)
        self._known |= found.succeeded
        found.succeeded = {key: self._known[key] for key in keys if key in self._known}
        return found

    async def _look_up(self, keys: list[str]) -> list[Coordinator]:
        connection = await self._client.any_broker()
        if connection.offers(FindCoordinatorRequest, FIND_SEVERAL_VERSION):
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=keys)
            return (await connection.send(request, FindCoordinatorResponse)).coordinators
        found = []
        for key in keys:
            request = FindCoordinatorRequest(key=key, key_type=self._key_type)
            one = await connection.send(request, FindCoordinatorResponse)
            found.append(Coordinator(key, one.node_id, one.host, one.port, one.error_code, one.error_message))
        return found

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self._known.pop(key, None)


class Controller:
    """The controller, which is responsible for every key."""

    passing = PASSING

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, keys: Collection[K]) -> Outcomes[K, int]:
        if self._client.cluster.controller_id == NO_NODE:
            await self._client.refresh([])
        # Where no broker is named, any may change the cluster.
        return Outcomes(dict.fromkeys(keys, self._client.cluster.controller_id))

    def forget(self, keys: Collection[object]) -> None:
        self._client.cluster.controller_id = NO_NODE


class Nodes(Generic[K]):
    """Brokers that the caller has chosen; NO_NODE stands for any."""

    passing = PASSING

    def __init__(self, by_key: Mapping[K, int]) -> None:
        self._by_key = by_key

    async def find(self, keys: Collection[K]) -> Outcomes[K, int]:
        return Outcomes({key: self._by_key[key] for key in keys})

    def forget(self, keys: Collection[K]) -> None:
        """The caller's choice does not change."""
