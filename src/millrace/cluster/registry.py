"""The cluster as the ensemble keeps it: members, the controller's seat, topics and configs in Kafka's nodes.

A controller's writes all carry a check of /controller_epoch, so that a deposed one cannot write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote

from millrace.clock import Clock
from millrace.cluster import znodes
from millrace.cluster.coordination import (
    Check,
    Conflict,
    Coordination,
    Create,
    Delete,
    Operation,
    Set,
    Stored,
)
from millrace.cluster.image import ALL_BROKERS, BrokerImage, ClusterImage, PartitionState, TopicImage
from millrace.cluster.topic_rules import new_uuid
from millrace.security.acls import Acl
from millrace.wire.schema import uuid_to_text

logger = logging.getLogger(__name__)

OPERATIONS_PER_COMMIT = 200
PRODUCER_ID_BLOCK = 1000
RETRY_SECONDS = 0.1
# A node of a former life that outlives its session by this much belongs to another broker.
FORMER_LIFE_PATIENCE_SECONDS = 5.0


class Seat(NamedTuple):
    """A term as the controller: its epoch, and the version of the node that fences the others."""

    epoch: int
    fence: int


class Deposed(Exception):
    """Another controller has taken over."""


class BrokerIdTaken(Exception):
    """Another broker is registered under the same number."""


class Registry:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, ensemble: Coordination, clock: Clock) -> None:
        self.ensemble = ensemble
        self._clock = clock

    # Membership

    async def prepare(self, proposed: str | None = None) -> str:
        """Make the nodes that every cluster has; returns the id of the cluster, proposed if it is new."""
        for path in znodes.PERSISTENT:
            await self._create_if_missing(Create(path))
        cluster_id = proposed or uuid_to_text(new_uuid())
        await self._create_if_missing(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        await self._create_if_missing(Create(znodes.CONTROLLER_EPOCH, b"0"))
        known = await self.ensemble.get(znodes.CLUSTER_ID)
        return cluster_id if known is None else str(znodes.parse(known.data)["id"])

    async def _create_if_missing(self, node: Create) -> None:
        if await self.ensemble.get(node.path) is None:
            try:
                await self.ensemble.commit([node])
            except Conflict:
                # Another broker was faster.
                return

    async def register(self, broker: BrokerImage, protocols: Mapping[str, str]) -> int:
        """Announce a broker for as long as its session lasts; returns the epoch of this life.

        The node of a former life has to go first: that session may need its timeout to end.
        """
        path = znodes.broker_path(broker.broker_id)
        data = znodes.encode_broker(broker, self._clock.now_ms(), protocols)
        deadline = time.monotonic() + self.ensemble.timeout_seconds + FORMER_LIFE_PATIENCE_SECONDS
        while True:
            known = await self.ensemble.get(path)
            if known is not None and known.owner == self.ensemble.session and known.data == data:
                return known.created
            try:
                if known is None:
                    await self.ensemble.commit([Create(path, data, ephemeral=True)])
                    continue
                if known.owner == self.ensemble.session:
                    await self.ensemble.commit([Delete(path)])
                    continue
            except Conflict:
                continue
            if time.monotonic() > deadline:
                taken = znodes.parse(known.data).get("endpoints")
                raise BrokerIdTaken(f"broker {broker.broker_id} is registered already, at {taken}")
            await asyncio.sleep(RETRY_SECONDS)

    async def brokers(self) -> list[BrokerImage]:
        """The live brokers."""
        numbers = sorted(int(name) for name in await self.ensemble.children(znodes.BROKERS))
        found = await self.ensemble.get_all([znodes.broker_path(number) for number in numbers])
        return [
            znodes.decode_broker(number, node.data, node.created)
            for number, node in zip(numbers, found, strict=True)
            if node is not None
        ]

    async def controller(self) -> int | None:
        """The broker that is the controller."""
        node = await self.ensemble.get(znodes.CONTROLLER)
        return None if node is None else int(znodes.parse(node.data)["brokerid"])

    async def broker(self, number: int) -> BrokerImage | None:
        node = await self.ensemble.get(znodes.broker_path(number))
        return None if node is None else znodes.decode_broker(number, node.data, node.created)

    async def campaign(self, broker: int) -> Seat | None:
        """Become the controller; None if there is one."""
        if await self.ensemble.get(znodes.CONTROLLER) is not None:
            return None
        epoch = await self.ensemble.get(znodes.CONTROLLER_EPOCH)
        if epoch is None:
            return None
        number = int(epoch.data) + 1
        try:
            await self.ensemble.commit(
                [
                    Create(
                        znodes.CONTROLLER,
                        znodes.encode_controller(broker, self._clock.now_ms()),
                        ephemeral=True,
                    ),
                    Set(znodes.CONTROLLER_EPOCH, str(number).encode(), epoch.version),
                ]
            )
        except Conflict:
            return None
        return Seat(number, epoch.version + 1)

    async def seat(self) -> Seat | None:
        """The seat that this session has already: the response to its campaign was lost."""
        controller = await self.ensemble.get(znodes.CONTROLLER)
        epoch = await self.ensemble.get(znodes.CONTROLLER_EPOCH)
        if controller is None or epoch is None or controller.owner != self.ensemble.session:
            return None
        return Seat(int(epoch.data), epoch.version)

    # Reading

    async def load(self, cluster_id: str) -> tuple[ClusterImage, dict[str, list[int]]]:
        """Everything but the brokers, and the partitions of each topic that have no state yet.

        Topics that are being deleted are marked so.
        """
        deleting = set(await self.ensemble.children(znodes.DELETED_TOPICS))
        image = ClusterImage(
            cluster_id,
            broker_configs=await self._configs(znodes.BROKER_CONFIGS),
            group_configs=await self._configs(znodes.GROUP_CONFIGS),
            entity_configs=await self._configs(znodes.ENTITY_CONFIGS),
        )
        acls = await self.ensemble.get(znodes.ACLS)
        if acls is not None:
            image = image.with_acls(znodes.decode_acls(acls.data))
        configs = await self._configs(znodes.TOPIC_CONFIGS)
        names = sorted(await self.ensemble.children(znodes.TOPICS))
        nodes = await self.ensemble.get_all([znodes.topic_path(name) for name in names])
        topics = []
        new: dict[str, list[int]] = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                topic, stateless = await self._load_topic(name, node)
                if stateless and name not in deleting:
                    new[name] = stateless
                topics.append(replace(topic, configs=configs.get(name, MappingProxyType({}))))
        image = image.with_topics(topic for topic in topics if topic.name not in deleting)
        deleted = {topic.topic_id: topic.name for topic in topics if topic.name in deleting}
        return replace(image, deleting=MappingProxyType(deleted)), new

    async def _load_topic(self, name: str, node: Stored) -> tuple[TopicImage, list[int]]:
        indexes = [int(index) for index in znodes.parse(node.data).get("partitions", {})]
        found = await self.ensemble.get_all([znodes.state_path(name, index) for index in indexes])
        states = {index: state for index, state in zip(indexes, found, strict=True) if state is not None}
        topic = znodes.decode_topic(
            name,
            node.data,
            {index: state.data for index, state in states.items()},
            {index: state.version for index, state in states.items()},
        )
        return topic, [index for index in indexes if index not in states]

    async def _configs(self, path: str) -> Mapping[str, Mapping[str, str]]:
        names = await self.ensemble.children(path)
        nodes = await self.ensemble.get_all([f"{path}/{name}" for name in names])
        return MappingProxyType(
            {
                ALL_BROKERS if name == znodes.ALL else unquote(name): MappingProxyType(
                    znodes.decode_configs(node.data)
                )
                for name, node in zip(names, nodes, strict=True)
                if node is not None
            }
        )

    # A controller's writes

    async def _write(self, seat: Seat, operations: Iterable[Operation]) -> None:
        """Write as the controller, in commits that the ensemble can take."""
        pending = list(operations)
        while pending:
            part, pending = pending[:OPERATIONS_PER_COMMIT], pending[OPERATIONS_PER_COMMIT:]
            await self._commit(seat, part)

    async def _commit(self, seat: Seat, operations: Sequence[Operation]) -> None:
        try:
            await self.ensemble.commit([Check(znodes.CONTROLLER_EPOCH, seat.fence), *operations])
        except Conflict as conflict:
            raise Deposed(str(conflict)) from conflict

    async def create_topic(self, seat: Seat, topic: TopicImage) -> None:
        await self._write(seat, await self._configs_write(znodes.TOPIC_CONFIGS, topic.name, topic.configs))
        path = znodes.topic_path(topic.name)
        await self._write(
            seat,
            [
                Create(path, znodes.encode_topic(topic)),
                Create(f"{path}/partitions"),
                *_new_states(seat, topic, range(topic.partitions)),
            ],
        )

    async def create_states(self, seat: Seat, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Write the first states of partitions; their controller was stopped before it could."""
        path = f"{znodes.topic_path(topic.name)}/partitions"
        if await self.ensemble.get(path) is None:
            await self._write(seat, [Create(path)])
        await self._write(seat, _new_states(seat, topic, indexes))

    async def add_partitions(self, seat: Seat, topic: TopicImage, first: int) -> None:
        await self._write(
            seat,
            [
                Set(znodes.topic_path(topic.name), znodes.encode_topic(topic)),
                *_new_states(seat, topic, range(first, topic.partitions)),
            ],
        )

    async def save_assignment(
        self, seat: Seat, topic: TopicImage, states: Mapping[int, PartitionState]
    ) -> None:
        """Write the replicas of a topic's partitions, and the states that go with them, in one commit."""
        await self._commit(
            seat,
            [
                Set(znodes.topic_path(topic.name), znodes.encode_topic(topic)),
                *_states_write(seat, {topic.name: states}),
            ],
        )

    async def save_states(self, seat: Seat, states: Mapping[str, Mapping[int, PartitionState]]) -> None:
        """Write states, each of which replaces the one of the partition epoch before."""
        await self._write(seat, _states_write(seat, states))

    async def mark_deleted(self, seat: Seat, topic: str) -> None:
        await self._write(seat, [Create(f"{znodes.DELETED_TOPICS}/{topic}")])

    async def remove_topic(self, seat: Seat, topic: str) -> None:
        """Remove the nodes of a deleted topic, the mark of its deletion last."""
        path = f"{znodes.topic_path(topic)}/partitions"
        indexes = await self.ensemble.children(path)
        operations: list[Operation] = []
        for index in indexes:
            if await self.ensemble.get(f"{path}/{index}/state") is not None:
                operations.append(Delete(f"{path}/{index}/state"))
            operations.append(Delete(f"{path}/{index}"))
        for node in (path, znodes.topic_path(topic), f"{znodes.TOPIC_CONFIGS}/{topic}"):
            if await self.ensemble.get(node) is not None:
                operations.append(Delete(node))
        await self._write(seat, [*operations, Delete(f"{znodes.DELETED_TOPICS}/{topic}")])

    async def save_topic_configs(self, seat: Seat, topic: str, configs: Mapping[str, str]) -> None:
        await self._write(seat, await self._configs_write(znodes.TOPIC_CONFIGS, topic, configs))

    async def save_broker_configs(self, seat: Seat, broker: str, configs: Mapping[str, str]) -> None:
        name = znodes.ALL if broker == ALL_BROKERS else broker
        await self._write(seat, await self._configs_write(znodes.BROKER_CONFIGS, name, configs))

    async def save_group_configs(self, seat: Seat, group: str, configs: Mapping[str, str]) -> None:
        await self._write(
            seat, await self._configs_write(znodes.GROUP_CONFIGS, quote(group, safe=""), configs)
        )

    async def save_entity_configs(self, seat: Seat, entity: str, configs: Mapping[str, str]) -> None:
        name = quote(entity, safe="")
        await self._write(seat, await self._configs_write(znodes.ENTITY_CONFIGS, name, configs))

    async def save_acls(self, seat: Seat, acls: frozenset[Acl]) -> None:
        data = znodes.encode_acls(acls)
        known = await self.ensemble.get(znodes.ACLS)
        await self._write(seat, [Create(znodes.ACLS, data) if known is None else Set(znodes.ACLS, data)])

    async def _configs_write(self, path: str, name: str, configs: Mapping[str, str]) -> list[Operation]:
        node = f"{path}/{name}"
        data = znodes.encode_configs(configs)
        if await self.ensemble.get(node) is None:
            return [Create(node, data)]
        return [Set(node, data)]

    async def take_producer_ids(self, seat: Seat, broker: int) -> tuple[int, int]:
        """A block of producer ids that no broker has: its first id, and their number."""
        node = await self.ensemble.get(znodes.PRODUCER_IDS)
        start = 0 if node is None else int(znodes.parse(node.data)["block_end"]) + 1
        data = znodes.encode_producer_ids(broker, start, start + PRODUCER_ID_BLOCK - 1)
        write: Operation = (
            Create(znodes.PRODUCER_IDS, data)
            if node is None
            else Set(znodes.PRODUCER_IDS, data, node.version)
        )
        await self._write(seat, [write])
        return start, PRODUCER_ID_BLOCK


def _states_write(seat: Seat, states: Mapping[str, Mapping[int, PartitionState]]) -> list[Operation]:
    return [
        Set(
            znodes.state_path(name, index),
            znodes.encode_state(state, seat.epoch),
            state.partition_epoch - 1,
        )
        for name, changed in states.items()
        for index, state in changed.items()
    ]


def _new_states(seat: Seat, topic: TopicImage, indexes: Iterable[int]) -> list[Operation]:
    operations: list[Operation] = []
    for index in indexes:
        operations.append(Create(znodes.partition_path(topic.name, index)))
        operations.append(
            Create(znodes.state_path(topic.name, index), znodes.encode_state(topic.states[index], seat.epoch))
        )
    return operations
