"""Resources that have configs: topics, brokers, loggers and groups, described and altered in the same way."""

from collections.abc import Sequence
from enum import IntEnum

from millrace.cluster.configs import (
    Change,
    ConfigEntry,
    apply_changes,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
    replacement,
)
from millrace.cluster.image import ALL_BROKERS, ClusterImage, TopicImage
from millrace.cluster.loggers import alter_loggers, describe_loggers
from millrace.cluster.store import MetadataStore
from millrace.cluster.topic_rules import check_topic_name
from millrace.config import GROUP_OPTIONS, TOPIC_OPTIONS, BrokerConfig
from millrace.config.known import find_broker_option
from millrace.errors import Error, KafkaError


class ResourceType(IntEnum):
    """Kinds of resources that have configs, numbered as the protocol numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def describe(image: ClusterImage, config: BrokerConfig, resource_type: int, name: str) -> list[ConfigEntry]:
    """All configs of a resource."""
    match resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            return describe_topic(config, image.topic(name).configs)
        case ResourceType.BROKER if name == ALL_BROKERS:
            return describe_broker_defaults(config)
        case ResourceType.BROKER:
            _check_broker(config, name)
            return describe_broker(config)
        case ResourceType.BROKER_LOGGER:
            _check_broker(config, name)
            return describe_loggers()
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(Error.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(config, image.group_configs.get(name, {}))
    raise _unexpected(resource_type)


async def alter(
    metadata: MetadataStore,
    config: BrokerConfig,
    resource_type: int,
    name: str,
    changes: Sequence[Change],
    *,
    validate_only: bool,
) -> None:
    """Change some of a resource's configs."""
    match resource_type:
        case ResourceType.TOPIC:
            topic = _topic(metadata.image, name)
            settings = apply_changes(topic.configs, changes, TOPIC_OPTIONS.get)
            await metadata.set_topic_configs(name, settings, validate_only=validate_only)
        case ResourceType.BROKER:
            _check_broker(config, name, or_all=True)
            current = metadata.image.broker_configs.get(name, {})
            settings = apply_changes(current, changes, find_broker_option)
            await metadata.set_broker_configs(name, settings, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER:
            _check_broker(config, name)
            alter_loggers(changes, validate_only=validate_only)
        case ResourceType.GROUP:
            _check_group(name)
            current = metadata.image.group_configs.get(name, {})
            settings = apply_changes(current, changes, GROUP_OPTIONS.get)
            await metadata.set_group_configs(name, settings, validate_only=validate_only)
        case _:
            raise _unexpected(resource_type)


async def replace(
    metadata: MetadataStore,
    config: BrokerConfig,
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
            _topic(metadata.image, name)
            await metadata.set_topic_configs(name, settings, validate_only=validate_only)
        case ResourceType.BROKER:
            _check_broker(config, name, or_all=True)
            await metadata.set_broker_configs(name, settings, validate_only=validate_only)
        case ResourceType.GROUP:
            _check_group(name)
            await metadata.set_group_configs(name, settings, validate_only=validate_only)
        case _:
            raise _unexpected(resource_type)


def names(image: ClusterImage, resource_type: ResourceType) -> list[str]:
    """The resources of one kind."""
    match resource_type:
        case ResourceType.TOPIC:
            return list(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker) for broker in image.brokers]
        case ResourceType.GROUP:
            return list(image.group_configs)
        case _:
            return []


def _topic(image: ClusterImage, name: str) -> TopicImage:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return image.topics[name]


def _check_group(name: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")


def _check_broker(config: BrokerConfig, name: str, *, or_all: bool = False) -> None:
    if or_all and name == ALL_BROKERS:
        return
    if not name.isdigit():
        raise KafkaError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != config.node_id:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {config.node_id}, but received {name}",
        )


def _unexpected(resource_type: int) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, f"Unsupported resource type {resource_type}")
