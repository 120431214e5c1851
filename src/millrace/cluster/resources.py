"""What configs belong to: topics, brokers and the broker's loggers, described and altered alike."""

from collections.abc import Sequence
from enum import IntEnum

from millrace.cluster.configs import (
    Change,
    ConfigEntry,
    apply_changes,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
    replacement,
)
from millrace.cluster.local import ALL_BROKERS, LocalCluster
from millrace.cluster.loggers import alter_loggers, describe_loggers
from millrace.cluster.metadata import Topic, check_topic_name
from millrace.config import TOPIC_OPTIONS
from millrace.config.known import find_broker_option
from millrace.errors import Error, KafkaError


class ResourceType(IntEnum):
    """Kinds of resources that have configs, numbered as the protocol numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def describe(cluster: LocalCluster, resource_type: int, name: str) -> list[ConfigEntry]:
    """All configs of a resource."""
    match resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            return describe_topic(cluster.config, cluster.topic(name).configs)
        case ResourceType.BROKER if name == ALL_BROKERS:
            return describe_broker_defaults(cluster.config)
        case ResourceType.BROKER:
            _check_broker(cluster, name)
            return describe_broker(cluster.config)
        case ResourceType.BROKER_LOGGER:
            _check_broker(cluster, name)
            return describe_loggers()
    raise _unexpected(resource_type)


def alter(
    cluster: LocalCluster, resource_type: int, name: str, changes: Sequence[Change], *, validate_only: bool
) -> None:
    """Change some of a resource's configs."""
    match resource_type:
        case ResourceType.TOPIC:
            topic = _topic(cluster, name)
            settings = apply_changes(topic.configs, changes, TOPIC_OPTIONS.get)
            cluster.set_topic_configs(topic, settings, validate_only=validate_only)
        case ResourceType.BROKER:
            _check_broker(cluster, name, or_all=True)
            settings = apply_changes(cluster.broker_configs(name), changes, find_broker_option)
            cluster.set_broker_configs(name, settings, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER:
            _check_broker(cluster, name)
            alter_loggers(changes, validate_only=validate_only)
        case _:
            raise _unexpected(resource_type)


def replace(
    cluster: LocalCluster,
    resource_type: int,
    name: str,
    configs: Sequence[tuple[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Set a resource's configs, and unset those that are not named."""
    settings = replacement(configs)
    match resource_type:
        case ResourceType.TOPIC:
            cluster.set_topic_configs(_topic(cluster, name), settings, validate_only=validate_only)
        case ResourceType.BROKER:
            _check_broker(cluster, name, or_all=True)
            cluster.set_broker_configs(name, settings, validate_only=validate_only)
        case _:
            raise _unexpected(resource_type)


def names(cluster: LocalCluster, resource_type: ResourceType) -> list[str]:
    """The resources of one kind."""
    match resource_type:
        case ResourceType.TOPIC:
            return list(cluster.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker) for broker in cluster.brokers]
        case _:
            return []


def _topic(cluster: LocalCluster, name: str) -> Topic:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in cluster.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return cluster.topics[name]


def _check_broker(cluster: LocalCluster, name: str, *, or_all: bool = False) -> None:
    if or_all and name == ALL_BROKERS:
        return
    if not name.isdigit():
        raise KafkaError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != cluster.node_id:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {cluster.node_id}, but received {name}",
        )


def _unexpected(resource_type: int) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, f"Unsupported resource type {resource_type}")
