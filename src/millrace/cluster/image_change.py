"""The difference between two images as bytes: what a controller sends to the brokers that follow it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from millrace.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionState, TopicImage
from millrace.security.acls import checked_acl
from millrace.wire.schema import uuid_from_text, uuid_to_text


def encode_change(before: ClusterImage, after: ClusterImage) -> bytes:
    """All that differs; before an empty image, that is everything."""
    change: dict[str, Any] = {"cluster": after.cluster_id, "controller": after.controller}
    if after.brokers is not before.brokers:
        change["brokers"] = [_broker(broker) for broker in after.brokers.values()]
    if after.broker_configs is not before.broker_configs:
        change["broker_configs"] = _plain(after.broker_configs)
    if after.group_configs is not before.group_configs:
        change["group_configs"] = _plain(after.group_configs)
    if after.entity_configs is not before.entity_configs:
        change["entity_configs"] = _plain(after.entity_configs)
    if after.acls != before.acls:
        change["acls"] = sorted(after.acls)
    if after.topics is not before.topics:
        change["removed"] = [
            uuid_to_text(topic_id) for topic_id in before.by_id if topic_id not in after.by_id
        ]
        change["topics"] = [
            _topic(before.by_id.get(topic.topic_id), topic)
            for topic in after.topics.values()
            if before.by_id.get(topic.topic_id) is not topic
        ]
    return json.dumps(change, separators=(",", ":")).encode()


def apply_change(image: ClusterImage, data: bytes) -> ClusterImage:
    """The image after a change; parts that do not differ stay the same objects."""
    change = json.loads(data)
    image = replace(image, cluster_id=change["cluster"], controller=change["controller"])
    if "brokers" in change:
        image = image.with_brokers(map(_read_broker, change["brokers"]))
    if "broker_configs" in change:
        image = replace(image, broker_configs=_frozen(change["broker_configs"]))
    if "group_configs" in change:
        image = replace(image, group_configs=_frozen(change["group_configs"]))
    if "entity_configs" in change:
        image = replace(image, entity_configs=_frozen(change["entity_configs"]))
    if "acls" in change:
        image = image.with_acls(frozenset(checked_acl(*entry) for entry in change["acls"]))
    for text in change.get("removed", ()):
        topic = image.by_id.get(uuid_from_text(text))
        if topic is not None:
            image = image.without_topic(topic).after_deletion(topic.topic_id)
    if change.get("topics"):
        image = image.with_topics([_read_topic(image, content) for content in change["topics"]])
    return image


def replace_all(image: ClusterImage, data: bytes) -> ClusterImage:
    """The image that a change from nothing describes, as the successor of another image."""
    complete = apply_change(ClusterImage(), data)
    return apply_change(image, encode_change(image, complete))


def _broker(broker: BrokerImage) -> list[Any]:
    endpoints = {name: list(endpoint) for name, endpoint in broker.endpoints.items()}
    return [broker.broker_id, endpoints, broker.rack, broker.epoch, broker.is_stopping]


def _read_broker(content: list[Any]) -> BrokerImage:
    broker_id, endpoints, rack, epoch, is_stopping = content
    known = {name: Endpoint(*endpoint) for name, endpoint in endpoints.items()}
    return BrokerImage(broker_id, MappingProxyType(known), rack, epoch, is_stopping)


def _topic(before: TopicImage | None, after: TopicImage) -> dict[str, Any]:
    known = () if before is None else before.states
    return {
        "name": after.name,
        "id": uuid_to_text(after.topic_id),
        "configs": dict(after.configs),
        "states": {
            str(index): list(state)
            for index, state in enumerate(after.states)
            if index >= len(known) or known[index] != state
        },
    }


def _read_topic(image: ClusterImage, content: dict[str, Any]) -> TopicImage:
    topic_id = uuid_from_text(content["id"])
    before = image.by_id.get(topic_id)
    states = dict(enumerate(() if before is None else before.states))
    states |= {int(index): _read_state(state) for index, state in content["states"].items()}
    configs: Mapping[str, str] = MappingProxyType(content["configs"])
    if before is not None and before.configs == configs:
        configs = before.configs
    return TopicImage(
        content["name"], topic_id, tuple(states[index] for index in range(len(states))), configs
    )


def _read_state(content: list[Any]) -> PartitionState:
    return PartitionState._make(tuple(value) if isinstance(value, list) else value for value in content)


def _plain(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(settings) for name, settings in configs.items()}


def _frozen(configs: dict[str, dict[str, str]]) -> Mapping[str, Mapping[str, str]]:
    return MappingProxyType({name: MappingProxyType(settings) for name, settings in configs.items()})
