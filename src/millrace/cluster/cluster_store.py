"""The metadata of a broker that is a member of a cluster.

The member registers at the ensemble, follows the controller's images, and becomes the controller itself when
there is none. Changes go to the controller, and return when this broker has acted on the image that has them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace.client.errors import BrokerUnreachable
from millrace.cluster.controller import NO_VERSION, Controller, IsrRequest, Version
from millrace.cluster.controller_requests import alter_partition_request
from millrace.cluster.coordination import Unavailable
from millrace.cluster.image import (
    NO_CONTROLLER,
    NO_EPOCH,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionState,
    TopicImage,
)
from millrace.cluster.image_change import apply_change, replace_all
from millrace.cluster.metadata_changes import MetadataChanges, dynamic_layers
from millrace.cluster.peers import Peers, security_between_brokers
from millrace.cluster.registry import BrokerIdTaken, Deposed, Registry
from millrace.cluster.store import PartitionStates, Subscriber
from millrace.cluster.topic_rules import DEFAULT
from millrace.config import BrokerConfig
from millrace.errors import Error, KafkaError, check, error_of
from millrace.security.acls import Acl
from millrace.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from millrace.wire.messages.alter_partition import AlterPartitionResponse
from millrace.wire.messages.change_metadata import ChangeMetadataRequest, ChangeMetadataResponse
from millrace.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from millrace.wire.messages.follow_metadata import FollowMetadataRequest, FollowMetadataResponse
from millrace.wire.schema import ZERO_UUID, uuid_from_text, uuid_to_text

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
CHANGE_SECONDS = 30.0
RETRY_SECONDS = 0.1
LEASE_CHECKS_PER_TIMEOUT = 20


class ClusterStore:
    """A `MetadataStore` of one member. Owned by the broker loop; not thread-safe."""

    def __init__(self, config: BrokerConfig, registry: Registry, cluster_id: str, listener: str) -> None:
        """`listener` is the name of the listener that brokers use among themselves."""
        self._config = config
        self._registry = registry
        self._image = ClusterImage(cluster_id)
        self._version = NO_VERSION
        self._subscribers: list[Subscriber] = []
        self._member: BrokerImage
        self._session = 0
        self._epoch = NO_EPOCH
        self._controller: Controller | None = None
        self._changes: MetadataChanges | None = None
        self.peers = Peers(lambda: self._image, listener, security_between_brokers(config))
        self._nudged = asyncio.Event()
        self._advanced = asyncio.Event()
        self._acting: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._has_lease = True
        self._prefer_at = 0.0

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def broker_epoch(self) -> int:
        """The life of this broker, as the cluster knows it."""
        return self._epoch

    @property
    def controller(self) -> Controller:
        """This broker's work as the controller; raises NOT_CONTROLLER if another broker is it."""
        if self._controller is None or self._controller.is_deposed:
            raise KafkaError(Error.NOT_CONTROLLER)
        return self._controller

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    # Joining and leaving

    async def register(self, broker: BrokerImage) -> None:
        self._member = broker
        self._registry.ensemble.on_change = self._nudged.set
        await self._join()
        self._registry.ensemble.watch()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow()), loop.create_task(self._watch_lease())]
        while self._version == NO_VERSION:
            self._advanced.clear()
            await self._advanced.wait()

    async def _join(self) -> None:
        session = self._registry.ensemble.session
        protocols = {listener.name: listener.protocol for listener in self._config.listeners}
        self._epoch = await self._registry.register(self._member, protocols)
        self._session = session
        logger.info("registered as broker %d, epoch %d", self._member.broker_id, self._epoch)

    async def leave(self) -> None:
        """End the session, so that the cluster need not wait for its timeout."""
        await self.abandon()
        await self._registry.ensemble.close()

    async def abandon(self) -> None:
        """Stop following; the session ends by its timeout."""
        for task in (*self._tasks, *self._acting):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._acting, return_exceptions=True)
        if self._controller is not None:
            self._controller.depose()
        self.peers.close()

    # Following

    async def _follow(self) -> None:
        """Follow one controller after the other, and be one when there is none."""
        while True:
            self._nudged.clear()
            try:
                if self._registry.ensemble.session != self._session:
                    self._step_down("its ZooKeeper session is over")
                    await self._join()
                await self._follow_one()
            except (KafkaError, Unavailable, Deposed) as reason:
                logger.info("looking for the controller: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
            except BrokerIdTaken as taken:
                logger.error("%s", taken)
                await asyncio.sleep(1)
            except Exception:
                logger.exception("a bug: following the controller failed")
                await asyncio.sleep(1)

    async def _follow_one(self) -> None:
        number = await self._registry.controller()
        if number == self._config.node_id and self._is_controller():
            await self._work(self.controller)
        elif number is None or number == self._config.node_id:
            await self._campaign(already=number is not None)
        else:
            self._controller = self._changes = None
            broker = self._image.brokers.get(number) or await self._registry.broker(number)
            if broker is None or self.peers.listener not in broker.endpoints:
                raise BrokerUnreachable(f"the controller, broker {number}, is not registered")
            await self._poll(broker.endpoints[self.peers.listener])

    def _is_controller(self) -> bool:
        return self._controller is not None and not self._controller.is_deposed

    async def _campaign(self, *, already: bool) -> None:
        """Become the controller; `already` if the ensemble calls this broker so and it does not know why."""
        if self._controller is not None:
            self._controller.depose()
        seat = await self._registry.seat() if already else await self._registry.campaign(self._config.node_id)
        if seat is None:
            await asyncio.sleep(RETRY_SECONDS)
            return
        controller = Controller(self._registry, seat, self._config)
        await controller.take_over(self._image.cluster_id)
        self._controller, self._changes = controller, MetadataChanges(controller)
        self._prefer_at = time.monotonic() + self._config.leader_imbalance_check_interval_seconds
        self._publish(controller.version, controller.image)

    async def _work(self, controller: Controller) -> None:
        """Be the controller until the members change; then take notice and go on."""
        await controller.update_brokers()
        while not self._nudged.is_set() and not controller.is_deposed:
            self._publish(controller.version, controller.image)
            await self._unless_nudged(controller.wait_past(controller.version, POLL_SECONDS))
            await self._prefer_leaders(controller)
        if controller.is_deposed:
            raise Deposed("this broker is not the controller any more")
        self._publish(controller.version, controller.image)

    async def _prefer_leaders(self, controller: Controller) -> None:
        """From time to time, give leadership back to the first replicas."""
        config, now = self._config, time.monotonic()
        if config.auto_leader_rebalance_enable and now >= self._prefer_at:
            self._prefer_at = now + config.leader_imbalance_check_interval_seconds
            await controller.prefer_leaders(config.leader_imbalance_per_broker_percentage / 100)

    async def _poll(self, endpoint: Endpoint) -> None:
        """Follow the controller at an address until it is not the controller any more."""
        connection = await self.peers.open(endpoint, POLL_SECONDS * 3)
        try:
            while not self._nudged.is_set():
                request = FollowMetadataRequest(
                    broker_id=self._config.node_id,
                    broker_epoch=self._epoch,
                    controller_epoch=self._version.controller_epoch,
                    number=self._version.number,
                    max_wait_ms=round(POLL_SECONDS * 1000),
                )
                asking = asyncio.ensure_future(connection.send_in(0, request, FollowMetadataResponse))
                if not await self._unless_nudged(asking):
                    return
                self._take(asking.result())
        finally:
            connection.close()

    def _take(self, response: FollowMetadataResponse) -> None:
        check(response.error_code)
        version = Version(response.controller_epoch, response.number)
        if version == self._version:
            return
        apply = replace_all if response.is_whole else apply_change
        self._publish(version, apply(self._image, bytes(response.change)))

    async def _unless_nudged(self, work: Awaitable[object]) -> bool:
        """Wait for some work unless the ensemble reports a change first; returns whether it is done."""
        working = asyncio.ensure_future(work)
        nudged = asyncio.ensure_future(self._nudged.wait())
        try:
            await asyncio.wait((working, nudged), return_when=asyncio.FIRST_COMPLETED)
            return working.done()
        finally:
            nudged.cancel()
            working.cancel()

    def _publish(self, version: Version, image: ClusterImage) -> None:
        """Act on an image that is newer than the present one."""
        if version <= self._version:
            return
        if not self._is_fresh():
            self._step_down("the ensemble does not answer")
            return
        self._version, before, self._image = version, self._image, image
        self._has_lease = True
        if image.broker_configs is not before.broker_configs:
            self._config.set_dynamic(*dynamic_layers(image, self._config.node_id))
        self._act()

    def _act(self) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(self._image))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)
        self._advanced.set()

    async def _tell(self, image: ClusterImage) -> None:
        for subscriber in self._subscribers:
            try:
                await subscriber(image)
            except KafkaError as error:
                logger.error("cannot act on a change of the metadata: %s", error)

    # The lease

    async def _watch_lease(self) -> None:
        """Stop leading when the session may be over, measured from the last request that was answered.

        The ensemble measures from its arrival, which is later: no other broker leads before this one stopped.
        """
        ensemble = self._registry.ensemble
        while True:
            await asyncio.sleep(ensemble.timeout_seconds / LEASE_CHECKS_PER_TIMEOUT)
            if self._has_lease and not self._is_fresh():
                self._step_down("the ensemble has not answered for a whole session timeout")

    def _is_fresh(self) -> bool:
        ensemble = self._registry.ensemble
        return time.monotonic() - ensemble.contact <= ensemble.timeout_seconds

    def _step_down(self, reason: str) -> None:
        """Lead nothing until a controller says so again."""
        if not self._has_lease:
            return
        logger.warning("broker %d stops leading: %s", self._config.node_id, reason)
        self._has_lease = False
        if self._controller is not None:
            self._controller.depose()
        # Whatever comes next is a new picture of the whole cluster.
        self._version = Version(self._version.controller_epoch, -1)
        self._nudged.set()
        states: dict[str, dict[int, PartitionState]] = {}
        for topic in self._image.topics.values():
            led = {
                index: state._replace(leader=NO_LEADER)
                for index, state in enumerate(topic.states)
                if state.leader == self._config.node_id
            }
            if led:
                states[topic.name] = led
        self._image = replace(self._image.with_partition_states(states), controller=NO_CONTROLLER)
        self._act()

    # Changes

    async def call(self, change: str, /, **arguments: Any) -> Any:
        """Have the controller make a change; returns when this broker has acted on it."""
        deadline = time.monotonic() + CHANGE_SECONDS
        while True:
            try:
                outcome, version = await self._call_once(change, arguments)
                break
            except (BrokerUnreachable, Deposed, Unavailable) as error:
                failure: Exception = error
            except KafkaError as error:
                if error.error is not Error.NOT_CONTROLLER:
                    raise
                failure = error
            if time.monotonic() > deadline:
                raise KafkaError(
                    Error.REQUEST_TIMED_OUT, f"The controller cannot be reached: {failure}"
                ) from failure
            await asyncio.sleep(RETRY_SECONDS)
        await self._reached(version)
        return outcome

    async def _call_once(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Version]:
        if self._is_controller():
            return await self.change_here(name, arguments)
        if self._image.controller in (NO_CONTROLLER, self._config.node_id):
            raise KafkaError(Error.NOT_CONTROLLER)
        request = ChangeMetadataRequest(name=name, arguments=json.dumps(arguments).encode())
        response = await self.peers.send(self._image.controller, request, ChangeMetadataResponse)
        check(response.error_code, response.error_message)
        outcome = json.loads(bytes(response.outcome) or b"null")
        return outcome, Version(response.controller_epoch, response.number)

    async def change_here(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, Version]:
        """Make a change as the controller. Raises NOT_CONTROLLER."""
        controller = self.controller
        assert self._changes is not None
        try:
            outcome = await self._changes.change(name, arguments)
        except (Deposed, Unavailable) as error:
            controller.depose()
            self._nudged.set()
            raise KafkaError(Error.NOT_CONTROLLER, str(error)) from error
        return outcome, controller.version

    async def _reached(self, version: Version) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                while self._version < version:
                    self._advanced.clear()
                    await self._advanced.wait()
                if self._acting:
                    await asyncio.wait(set(self._acting))
        except TimeoutError:
            raise KafkaError(
                Error.REQUEST_TIMED_OUT, "The change is made, but this broker has not received it yet."
            ) from None

    async def alter_isrs(
        self, requests: Mapping[tuple[bytes, int], IsrRequest]
    ) -> dict[tuple[bytes, int], Error]:
        """Ask the controller for other replicas in sync; returns an error for each partition, or NONE."""
        if self._is_controller():
            outcomes = await self.controller.alter_isrs(self._config.node_id, self._epoch, requests)
            return {
                key: outcome.error if isinstance(outcome, KafkaError) else Error.NONE
                for key, outcome in outcomes.items()
            }
        response = await self.peers.send(
            self._image.controller,
            alter_partition_request(self._config.node_id, self._epoch, requests),
            AlterPartitionResponse,
        )
        check(response.error_code)
        return {
            (topic.topic_id, partition.partition_index): error_of(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    async def take_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids for this broker: its first id, and their number."""
        if self._is_controller():
            return await self.controller.take_producer_ids(self._config.node_id, self._epoch)
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self._epoch)
        response = await self.peers.send(self._image.controller, request, AllocateProducerIdsResponse)
        check(response.error_code)
        return response.producer_id_start, response.producer_id_len

    async def begin_to_stop(self) -> None:
        """Have the controller move this broker's leaders to others, and wait until they are moved."""
        request = ControlledShutdownRequest(broker_id=self._config.node_id, broker_epoch=self._epoch)
        if self._is_controller():
            await self.controller.stop_broker(self._config.node_id, self._epoch)
            version = self.controller.version
            await self._reached(version)
        else:
            response = await self.peers.send(self._image.controller, request, ControlledShutdownResponse)
            check(response.error_code)
            remaining = {(left.topic_name, left.partition_index) for left in response.remaining_partitions}
            while self._led() - remaining:
                self._advanced.clear()
                await self._advanced.wait()
        if self._acting:
            await asyncio.wait(set(self._acting))

    def _led(self) -> set[tuple[str, int]]:
        """The partitions with several replicas that this broker leads."""
        return {
            (topic.name, index)
            for topic in self._image.topics.values()
            for index, state in enumerate(topic.states)
            if state.leader == self._config.node_id and len(state.replicas) > 1
        }

    # The changes of a MetadataStore

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        topic_id = await self.call(
            "create_topic",
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
            assignments=assignments and {str(index): list(of) for index, of in assignments.items()},
            validate_only=validate_only,
        )
        if validate_only:
            return TopicImage(name, ZERO_UUID, (), dict(configs or {}))
        return self._image.topic_by_id(uuid_from_text(topic_id))

    async def delete_topic(self, topic: TopicImage) -> None:
        if not self._config.delete_topic_enable:
            raise KafkaError(Error.TOPIC_DELETION_DISABLED)
        await self.call("delete_topic", topic_id=uuid_to_text(topic.topic_id))

    async def finish_deletion(self, topic_id: bytes) -> None:
        """The controller forgets a deleted topic; no broker has to confirm."""

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        await self.call(
            "add_partitions",
            name=name,
            count=count,
            assignments=assignments and [list(replicas) for replicas in assignments],
            validate_only=validate_only,
        )

    async def set_topic_configs(
        self, name: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        await self.call("set_topic_configs", name=name, settings=dict(settings), validate_only=validate_only)

    async def set_broker_configs(
        self, broker: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        await self.call(
            "set_broker_configs", broker=broker, settings=dict(settings), validate_only=validate_only
        )

    async def set_group_configs(
        self, group: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        await self.call(
            "set_group_configs", group=group, settings=dict(settings), validate_only=validate_only
        )

    async def alter_entity_configs(self, entity: str, changes: Mapping[str, str | None]) -> None:
        await self.call("alter_entity_configs", entity=entity, changes=dict(changes))

    async def alter_acls(self, *, added: Collection[Acl] = (), removed: Collection[Acl] = ()) -> None:
        await self.call(
            "alter_acls", added=[list(acl) for acl in added], removed=[list(acl) for acl in removed]
        )

    async def alter_partitions(self, states: PartitionStates) -> None:
        """Report the partitions whose logs this broker cannot open."""
        here = self._config.node_id
        offline = {
            name: [index for index, state in changed.items() if here in state.offline]
            for name, changed in states.items()
        }
        await self.call(
            "report_partitions",
            broker=here,
            offline={name: indexes for name, indexes in offline.items() if indexes},
        )
