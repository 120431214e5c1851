"""The controller: the one broker that changes the cluster's metadata and lets the others follow.

Every change is decided on the image, written to the ensemble with a check that no other controller has taken
over, and only then published. Brokers ask for the next image and wait for it, so that each gets all changes
in order, and a broker that was restarted cannot be reached by what was meant for its former life.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from millrace.cluster import leadership
from millrace.cluster.coordination import Unavailable
from millrace.cluster.image import (
    INTERNAL_TOPICS,
    NO_EPOCH,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionState,
    TopicImage,
)
from millrace.cluster.image_change import encode_change
from millrace.cluster.leadership import Electorate
from millrace.cluster.registry import Deposed, Registry, Seat
from millrace.config import BrokerConfig
from millrace.errors import Error, KafkaError

logger = logging.getLogger(__name__)

# Followers that are further behind get the whole image.
KEPT_IMAGES = 200

Decide = Callable[[PartitionState, Electorate], PartitionState]
"""Says what the state of a partition has to be."""


class Version(NamedTuple):
    """The place of an image among all images of the cluster."""

    controller_epoch: int
    number: int


NO_VERSION = Version(-1, -1)


class NextImage(NamedTuple):
    """The newest image, as the change from an earlier one."""

    version: Version
    is_whole: bool
    """Whether it is the change from nothing."""
    change: bytes


class IsrRequest(NamedTuple):
    """A leader's wish for other replicas in sync, with the broker epoch of each."""

    leader_epoch: int
    partition_epoch: int
    in_sync: Mapping[int, int]


class Controller:
    """One term of one broker. Owned by the broker loop; not thread-safe."""

    def __init__(self, registry: Registry, seat: Seat, config: BrokerConfig) -> None:
        self.registry = registry
        self.seat = seat
        self.config = config
        self.changing = asyncio.Lock()
        """Held from a decision until it is published."""
        self.is_deposed = False
        self._image = ClusterImage()
        self._number = 0
        self._kept: deque[tuple[int, ClusterImage]] = deque(maxlen=KEPT_IMAGES)
        self._published = asyncio.Event()
        self._rules: dict[str, tuple[Mapping[str, str], int, bool]] = {}

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def version(self) -> Version:
        return Version(self.seat.epoch, self._number)

    # Taking over

    async def take_over(self, cluster_id: str) -> None:
        """Read the cluster, complete what the controller before left half done, and publish it."""
        async with self.changing:
            image, stateless = await self.registry.load(cluster_id)
            image = replace(image, controller=self.config.node_id).with_brokers(await self.registry.brokers())
            for name, missing in stateless.items():
                await self.registry.create_states(self.seat, image.topics[name], missing)
            deleted, self._image = image.deleting.values(), replace(image, deleting={})
            await self._save(self._image, self._decided(self._image, leadership.settled))
            for name in deleted:
                await self.registry.remove_topic(self.seat, name)
        logger.info("controller of epoch %d: %d topics", self.seat.epoch, len(self._image.topics))

    # Saving and publishing

    async def save(self, image: ClusterImage, states: Mapping[str, Mapping[int, PartitionState]]) -> None:
        """Write partition states and publish an image with them; `changing` is held.

        A controller that cannot tell whether its write succeeded stops being one: the next reads the truth.
        """
        try:
            await self._save(image, states)
        except (Deposed, Unavailable):
            self.depose()
            raise

    async def _save(self, image: ClusterImage, states: Mapping[str, Mapping[int, PartitionState]]) -> None:
        after = image.with_partition_states(states)
        moved = {
            name: changed
            for name, changed in states.items()
            if any(
                _assignment(state) != _assignment(image.topics[name].states[index])
                for index, state in changed.items()
            )
        }
        for name, changed in moved.items():
            await self.registry.save_assignment(self.seat, after.topics[name], changed)
        await self.registry.save_states(
            self.seat, {name: changed for name, changed in states.items() if name not in moved}
        )
        self.publish(after)

    def publish(self, image: ClusterImage) -> None:
        """Let the brokers act on an image that is written down."""
        self._image = image
        self._number += 1
        self._kept.append((self._number, image))
        published, self._published = self._published, asyncio.Event()
        published.set()

    def depose(self) -> None:
        """Another controller may act from now on."""
        self.is_deposed = True
        self._published.set()

    # Following

    async def next_image(
        self, broker: int, broker_epoch: int, known: Version, wait_seconds: float
    ) -> NextImage:
        """The newest image, once it differs from the one that a broker knows, or after the wait.

        Raises STALE_BROKER_EPOCH until this life of the broker is part of the image.
        """
        await self.wait_past(known, wait_seconds)
        if self.is_deposed or not self._kept:
            raise KafkaError(Error.NOT_CONTROLLER)
        member = self._image.brokers.get(broker)
        if member is None or member.epoch != broker_epoch:
            raise KafkaError(Error.STALE_BROKER_EPOCH)
        before = self._kept_image(known)
        change = encode_change(ClusterImage() if before is None else before, self._image)
        return NextImage(self.version, before is None, change)

    async def wait_past(self, known: Version, wait_seconds: float) -> None:
        """Wait for an image after a known one, or for the end of the term, or for so long."""
        if self.version == known and not self.is_deposed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._published.wait()

    def _kept_image(self, version: Version) -> ClusterImage | None:
        if version.controller_epoch != self.seat.epoch or not self._kept:
            return None
        place = version.number - self._kept[0][0]
        return self._kept[place][1] if 0 <= place < len(self._kept) else None

    # Brokers

    async def update_brokers(self) -> None:
        """Notice the brokers that came and went, and move what the lost ones led."""
        async with self.changing:
            before = self._image.brokers
            stopping = {number: known.epoch for number, known in before.items() if known.is_stopping}
            brokers = [
                replace(broker, is_stopping=stopping.get(broker.broker_id) == broker.epoch)
                for broker in await self.registry.brokers()
            ]
            now = {broker.broker_id: broker for broker in brokers}
            if now == dict(before):
                return
            returned = {
                number
                for number, broker in now.items()
                if number in before and before[number].epoch != broker.epoch
            }
            for number in before.keys() - now.keys():
                logger.warning("broker %d is gone", number)
            for number in (now.keys() - before.keys()) | returned:
                logger.info("broker %d has joined", number)
            image = self._image.with_brokers(brokers)
            decide = partial(leadership.settled_after, returned=returned)
            await self.save(image, self._decided(image, decide))
            if raised := self._raised_factors():
                await self.save(self._image, raised)

    def _raised_factors(self) -> dict[str, dict[int, PartitionState]]:
        """Internal topics get the replicas that they lacked when there were fewer brokers."""
        image = self._image
        live = [number for number, broker in image.brokers.items() if not broker.is_stopping]
        hosted = Counter(
            replica for topic in image.topics.values() for state in topic.states for replica in state.replicas
        )
        states: dict[str, dict[int, PartitionState]] = {}
        for name in INTERNAL_TOPICS & image.topics.keys():
            topic = image.topics[name]
            factor = min(self.config.replication_factor_of(name), len(live))
            for index, state in enumerate(topic.states):
                missing = factor - len(state.replicas)
                if missing <= 0 or state.adding or state.removing or state.leader == NO_LEADER:
                    continue
                able = sorted(set(live) - set(state.replicas), key=lambda broker: (hosted[broker], broker))
                added = able[:missing]
                hosted.update(added)
                states.setdefault(name, {})[index] = leadership.reassigning(
                    state, (*state.replicas, *added), self.electorate(topic, image)
                )
        return states

    async def prefer_leaders(self, tolerated: float) -> None:
        """Elect the first replicas of brokers that lead too few of those partitions, as a share of them."""
        async with self.changing:
            image = self._image
            preferred: Counter[int] = Counter()
            lost: Counter[int] = Counter()
            for topic in image.topics.values():
                for state in topic.states:
                    first = leadership.target_replicas(state)[0]
                    preferred[first] += 1
                    lost[first] += leadership.prefers_another(state)
            short = {broker for broker in lost if lost[broker] > tolerated * preferred[broker]}

            def decide(state: PartitionState, electorate: Electorate) -> PartitionState:
                first = leadership.target_replicas(state)[0]
                is_short = first in short and leadership.prefers_another(state)
                return leadership.preferred(state, electorate) if is_short else state

            await self.decide(image, decide)

    async def stop_broker(self, broker: int, broker_epoch: int) -> list[tuple[str, int]]:
        """Move leaders away from a broker that is about to stop; returns the partitions it still leads."""
        async with self.changing:
            member = self._member(broker, broker_epoch)
            image = self._image.with_broker(replace(member, is_stopping=True))
            await self.save(image, self._decided(image, leadership.settled))
            return [
                (topic.name, index)
                for topic in self._image.topics.values()
                for index, state in enumerate(topic.states)
                if state.leader == broker and len(state.replicas) > 1
            ]

    def _member(self, broker: int, broker_epoch: int) -> BrokerImage:
        member = self._image.brokers.get(broker)
        if member is None or member.epoch != broker_epoch:
            raise KafkaError(Error.STALE_BROKER_EPOCH)
        return member

    # Partitions

    def electorate(self, topic: TopicImage, image: ClusterImage) -> Electorate:
        """The brokers of an image, under the rules of a topic."""
        brokers = image.brokers
        min_insync_replicas, allows_unclean = self._rules_of(topic)
        return Electorate(
            {number: broker.epoch for number, broker in brokers.items()},
            frozenset(number for number, broker in brokers.items() if broker.is_stopping),
            min_insync_replicas,
            allows_unclean,
        )

    def _rules_of(self, topic: TopicImage) -> tuple[int, bool]:
        known = self._rules.get(topic.name)
        if known is None or known[0] is not topic.configs:
            config = self.config.log_config(dict(topic.configs))
            known = self._rules[topic.name] = (
                topic.configs,
                config.min_insync_replicas,
                config.unclean_leader_election_enable,
            )
        return known[1], known[2]

    def forget_rules(self) -> None:
        """The defaults of topics have changed."""
        self._rules.clear()

    def _decided(
        self, image: ClusterImage, decide: Decide, only: Collection[str] | None = None
    ) -> dict[str, dict[int, PartitionState]]:
        """The states that differ once a decision is taken on every partition."""
        states: dict[str, dict[int, PartitionState]] = {}
        for topic in image.topics.values():
            if only is not None and topic.name not in only:
                continue
            electorate = self.electorate(topic, image)
            for index, state in enumerate(topic.states):
                changed = decide(state, electorate)
                if changed is not state and changed != state:
                    states.setdefault(topic.name, {})[index] = changed
        return states

    async def decide(self, image: ClusterImage, decide: Decide, only: Collection[str] | None = None) -> None:
        """Take a decision on every partition of an image, and save what differs; `changing` is held."""
        states = self._decided(image, decide, only)
        if states or image is not self._image:
            await self.save(image, states)

    async def alter_isrs(
        self, broker: int, broker_epoch: int, requests: Mapping[tuple[bytes, int], IsrRequest]
    ) -> dict[tuple[bytes, int], PartitionState | KafkaError]:
        """Change the replicas in sync as a leader asks; each partition has its own outcome."""
        async with self.changing:
            self._member(broker, broker_epoch)
            outcomes: dict[tuple[bytes, int], PartitionState | KafkaError] = {}
            states: dict[str, dict[int, PartitionState]] = {}
            for (topic_id, index), request in requests.items():
                try:
                    topic = self._image.topic_by_id(topic_id)
                    if not 0 <= index < topic.partitions:
                        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
                    state = topic.states[index]
                    changed = leadership.altered(
                        state,
                        self.electorate(topic, self._image),
                        leader=broker,
                        leader_epoch=request.leader_epoch,
                        partition_epoch=request.partition_epoch,
                        in_sync=request.in_sync,
                    )
                except KafkaError as error:
                    outcomes[topic_id, index] = error
                    continue
                outcomes[topic_id, index] = changed
                if changed is not state:
                    states.setdefault(topic.name, {})[index] = changed
            if states:
                await self.save(self._image, states)
            # A replica that joined may have been the first of several that are to be added.
            if not INTERNAL_TOPICS.isdisjoint(states) and (raised := self._raised_factors()):
                await self.save(self._image, raised)
            return outcomes

    # Producer ids

    async def take_producer_ids(self, broker: int, broker_epoch: int) -> tuple[int, int]:
        """A block of producer ids for a broker: its first id, and their number."""
        async with self.changing:
            if broker_epoch != NO_EPOCH:
                self._member(broker, broker_epoch)
            try:
                return await self.registry.take_producer_ids(self.seat, broker)
            except (Deposed, Unavailable):
                self.depose()
                raise


def _assignment(state: PartitionState) -> tuple[tuple[int, ...], ...]:
    """The part of a state that is written with its topic."""
    return state.replicas, state.adding, state.removing
