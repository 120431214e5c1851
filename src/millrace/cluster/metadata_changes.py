"""The changes that clients and operators ask the controller for: topics, configs, elections, reassignments.

Arguments and results are plain values, since a change may come from another broker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from millrace.cluster import leadership
from millrace.cluster.configs import check_broker_settings, check_group_settings
from millrace.cluster.controller import Controller
from millrace.cluster.image import (
    ALL_BROKERS,
    NO_LEADER,
    ClusterImage,
    PartitionState,
    TopicImage,
)
from millrace.cluster.leadership import Electorate
from millrace.cluster.topic_rules import check_replicas, check_topic_configs, grown_topic, new_topic
from millrace.config import BrokerConfig
from millrace.errors import Error, KafkaError
from millrace.security.acls import checked_acl
from millrace.wire.schema import ZERO_UUID, uuid_from_text, uuid_to_text

logger = logging.getLogger(__name__)


class MetadataChanges:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._registry = controller.registry
        self._config = controller.config

    async def change(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Make a change by its name."""
        changes = {
            change.__name__: change
            for change in (
                self.create_topic,
                self.delete_topic,
                self.add_partitions,
                self.set_topic_configs,
                self.set_broker_configs,
                self.set_group_configs,
                self.alter_entity_configs,
                self.alter_acls,
                self.report_partitions,
                self.elect,
                self.reassign,
            )
        }
        if name not in changes:
            raise KafkaError(Error.INVALID_REQUEST, f"There is no change {name!r}.")
        async with self._controller.changing:
            return await changes[name](**arguments)

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        assignments: Mapping[str, Sequence[int]] | None,
        validate_only: bool,
    ) -> str:
        """Create a topic; returns its id."""
        image = self._controller.image
        topic = new_topic(
            image,
            self._config,
            name,
            partitions,
            replication_factor,
            configs=configs,
            assignments={int(index): list(of) for index, of in (assignments or {}).items()},
        )
        if validate_only:
            return uuid_to_text(ZERO_UUID)
        topic = replace(topic, states=_led(topic.states, image))
        await self._registry.create_topic(self._controller.seat, topic)
        self._controller.publish(image.with_topics([topic]))
        logger.info("created topic %s with %d partitions", name, topic.partitions)
        return uuid_to_text(topic.topic_id)

    async def delete_topic(self, topic_id: str) -> None:
        image = self._controller.image
        topic = image.topic_by_id(uuid_from_text(topic_id))
        await self._registry.mark_deleted(self._controller.seat, topic.name)
        self._controller.publish(image.without_topic(topic).after_deletion(topic.topic_id))
        await self._registry.remove_topic(self._controller.seat, topic.name)
        logger.info("deleted topic %s", topic.name)

    async def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, validate_only: bool
    ) -> None:
        image = self._controller.image
        before = image.topic(name).partitions
        topic = grown_topic(image, name, count, assignments)
        if validate_only:
            return
        topic = replace(topic, states=topic.states[:before] + _led(topic.states[before:], image))
        await self._registry.add_partitions(self._controller.seat, topic, before)
        self._controller.publish(image.with_topics([topic]))

    # Configs

    async def set_topic_configs(self, name: str, settings: Mapping[str, str], validate_only: bool) -> None:
        image = self._controller.image
        topic = image.topic(name)
        check_topic_configs(self._config, settings)
        if validate_only or settings == topic.configs:
            return
        await self._registry.save_topic_configs(self._controller.seat, name, settings)
        changed = replace(topic, configs=MappingProxyType(dict(settings)))
        # Another min.insync.replicas or unclean election may change what the partitions have to be.
        await self._controller.decide(image.with_topics([changed]), leadership.settled, [name])

    async def set_broker_configs(self, broker: str, settings: Mapping[str, str], validate_only: bool) -> None:
        image = self._controller.image
        before = image.broker_configs.get(broker, {})
        check_broker_settings(before, settings, all_brokers=broker == ALL_BROKERS)
        after = image.with_broker_configs(broker, MappingProxyType(dict(settings)))
        _check_topics(self._config, image, after)
        if validate_only:
            return
        await self._registry.save_broker_configs(self._controller.seat, broker, settings)
        self._config.set_dynamic(*dynamic_layers(after, self._config.node_id))
        self._controller.forget_rules()
        await self._controller.decide(after, leadership.settled)

    async def set_group_configs(self, group: str, settings: Mapping[str, str], validate_only: bool) -> None:
        image = self._controller.image
        check_group_settings(self._config, settings)
        if validate_only or settings == image.group_configs.get(group, {}):
            return
        await self._registry.save_group_configs(self._controller.seat, group, settings)
        self._controller.publish(image.with_group_configs(group, MappingProxyType(dict(settings))))

    async def alter_entity_configs(self, entity: str, changes: Mapping[str, str | None]) -> None:
        image = self._controller.image
        settings = {**image.entity_configs.get(entity, {}), **changes}
        kept = {name: text for name, text in settings.items() if text is not None}
        await self._registry.save_entity_configs(self._controller.seat, entity, kept)
        self._controller.publish(image.with_entity_configs(entity, MappingProxyType(kept)))

    async def alter_acls(self, added: Sequence[Sequence[Any]], removed: Sequence[Sequence[Any]]) -> None:
        image = self._controller.image
        acls = (image.acls | {checked_acl(*entry) for entry in added}) - {
            checked_acl(*entry) for entry in removed
        }
        if acls != image.acls:
            await self._registry.save_acls(self._controller.seat, acls)
            self._controller.publish(image.with_acls(acls))

    # Partitions

    async def report_partitions(self, broker: int, offline: Mapping[str, Sequence[int]]) -> None:
        """A broker cannot open the logs of some partitions."""

        def decide(topic: TopicImage) -> dict[int, PartitionState]:
            electorate = self._controller.electorate(topic, image)
            states = {}
            for index in offline[topic.name]:
                state = topic.states[index]
                if broker not in state.offline and broker in state.replicas:
                    lost = state._replace(offline=(*state.offline, broker))
                    settled = leadership.settled(lost, electorate)
                    states[index] = settled._replace(partition_epoch=state.partition_epoch + 1)
            return states

        image = self._controller.image
        await self._controller.save(
            image, {name: decide(image.topics[name]) for name in offline if name in image.topics}
        )

    async def elect(
        self, partitions: Mapping[str, Sequence[int]] | None, unclean: bool
    ) -> list[tuple[str, int, int, str | None]]:
        """Elect the preferred leaders, or any; returns an error for each partition."""
        image = self._controller.image
        named = (
            [(name, index) for name, indexes in partitions.items() for index in indexes]
            if partitions is not None
            else [(topic.name, index) for topic in image.topics.values() for index in range(topic.partitions)]
        )
        outcomes: list[tuple[str, int, int, str | None]] = []
        states: dict[str, dict[int, PartitionState]] = {}
        for name, index in named:
            try:
                changed = self._elected(image, name, index, unclean=unclean)
            except KafkaError as error:
                outcomes.append((name, index, int(error.error), error.message))
            else:
                states.setdefault(name, {})[index] = changed
                outcomes.append((name, index, 0, None))
        if states:
            await self._controller.save(image, states)
        return outcomes

    def _elected(self, image: ClusterImage, name: str, index: int, *, unclean: bool) -> PartitionState:
        state = _partition(image, name, index)
        electorate = self._controller.electorate(image.topics[name], image)
        needed = (
            state.leader == NO_LEADER if unclean else state.leader != leadership.target_replicas(state)[0]
        )
        if not needed:
            raise KafkaError(Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        if unclean:
            changed = leadership.elected_uncleanly(state, electorate)
            if changed is state:
                raise KafkaError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica can be elected.")
            return changed
        changed = leadership.preferred(state, electorate)
        if changed is state:
            raise KafkaError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader is not available.")
        return changed

    async def reassign(
        self, partitions: Sequence[tuple[str, int, Sequence[int] | None]], keep_factor: bool = False
    ) -> list[tuple[int, str | None]]:
        """Move partitions to other brokers; None cancels. Returns an error for each."""
        image = self._controller.image
        outcomes: list[tuple[int, str | None]] = []
        states: dict[str, dict[int, PartitionState]] = {}
        for name, index, target in partitions:
            try:
                state = _partition(image, name, index)
                electorate = self._controller.electorate(image.topics[name], image)
                changed = _reassigned(image, state, target, electorate, keep_factor=keep_factor)
            except KafkaError as error:
                outcomes.append((int(error.error), error.message))
                continue
            outcomes.append((0, None))
            if changed is not state:
                states.setdefault(name, {})[index] = changed
        if states:
            await self._controller.save(image, states)
        return outcomes


def _reassigned(
    image: ClusterImage,
    state: PartitionState,
    target: Sequence[int] | None,
    electorate: Electorate,
    *,
    keep_factor: bool,
) -> PartitionState:
    if target is None:
        if not state.adding and not state.removing:
            raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
        return leadership.reassigning(state, leadership.original_replicas(state), electorate)
    check_replicas(target, tuple(image.brokers))
    if keep_factor and len(target) != len(leadership.original_replicas(state)):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR, "The replication factor is changed, which the request forbids."
        )
    if tuple(target) == state.replicas and not state.adding and not state.removing:
        return state
    return leadership.reassigning(state, tuple(target), electorate)


def _partition(image: ClusterImage, name: str, index: int) -> PartitionState:
    if name not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    state = image.partition(name, index)
    if state is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return state


def _led(states: Sequence[PartitionState], image: ClusterImage) -> tuple[PartitionState, ...]:
    """The states of new partitions, with the present lives of their leaders."""
    return tuple(state._replace(leader_broker_epoch=image.brokers[state.leader].epoch) for state in states)


def dynamic_layers(image: ClusterImage, node_id: int) -> tuple[dict[str, str], dict[str, str]]:
    """The dynamic configs of all brokers, and those of one."""
    configs = image.broker_configs
    return dict(configs.get(ALL_BROKERS, {})), dict(configs.get(str(node_id), {}))


def _check_topics(config: BrokerConfig, before: ClusterImage, after: ClusterImage) -> None:
    """Reject broker configs that contradict the configs of a topic."""
    config.set_dynamic(*dynamic_layers(after, config.node_id))
    try:
        for topic in after.topics.values():
            check_topic_configs(config, topic.configs)
    finally:
        config.set_dynamic(*dynamic_layers(before, config.node_id))
