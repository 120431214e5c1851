"""Configuration of topics, brokers, broker loggers and groups: lists, describes and alters it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from millrace.client import NO_NODE, Client, Connection, Outcomes
from millrace.errors import check
from millrace.wire.messages import describe_configs as describe_api
from millrace.wire.messages import incremental_alter_configs as alter_api
from millrace.wire.messages import list_config_resources as list_api

_TYPES_VERSION = 1

BROKER_DEFAULTS = ""
"""The resource name of the defaults of all brokers."""


class ResourceType(IntEnum):
    """A kind of thing that has configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class ConfigSource(IntEnum):
    """The origin of a value, under Kafka's names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigOperation(IntEnum):
    """A way to change a value; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, a broker, the defaults of all brokers, a broker's loggers, or a group."""

    type: ResourceType
    name: str

    @property
    def node_id(self) -> int:
        """The broker that alone knows this configuration; NO_NODE if all do."""
        of_broker = self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        is_only_there = of_broker and self.name != BROKER_DEFAULTS
        return int(self.name) if is_only_there else NO_NODE


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that holds if those before it are not set."""

    source: ConfigSource
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting: its value, where the value comes from, and what it would be without that."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


def topic_resource(name: str) -> ConfigResource:
    """The configuration of a topic."""
    return ConfigResource(ResourceType.TOPIC, name)


async def list_configured(client: Client, resource_type: ResourceType) -> list[str]:
    """The names of the resources of a type that have configuration of their own."""

    async def call(connection: Connection, types: list[ResourceType]) -> Outcomes[ResourceType, list[str]]:
        request = list_api.ListConfigResourcesRequest(resource_types=[int(resource_type)])
        response = await connection.send(request, list_api.ListConfigResourcesResponse, lowest=_TYPES_VERSION)
        check(response.error_code)
        names = sorted(resource.resource_name for resource in response.config_resources)
        return Outcomes(dict.fromkeys(types, names))

    return (await client.call_controller([resource_type], call))[resource_type]


async def describe_configs(
    client: Client, resources: Iterable[ConfigResource]
) -> Outcomes[ConfigResource, list[ConfigEntry]]:
    """Every setting of these resources."""

    async def call(
        connection: Connection, resources: list[ConfigResource]
    ) -> Outcomes[ConfigResource, list[ConfigEntry]]:
        request = describe_api.DescribeConfigsRequest(
            resources=[
                describe_api.DescribeConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configuration_keys=None
                )
                for resource in resources
            ],
            include_synonyms=True,
        )
        outcomes: Outcomes[ConfigResource, list[ConfigEntry]] = Outcomes()
        for result in (await connection.send(request, describe_api.DescribeConfigsResponse)).results:
            key = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            outcomes.add(key, list(map(_entry, result.configs)), result.error_code, result.error_message)
        return outcomes

    return await client.call_nodes({resource: resource.node_id for resource in resources}, call)


def _entry(config: describe_api.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        is_sensitive=config.is_sensitive,
        is_read_only=config.read_only,
        synonyms=tuple(
            ConfigSynonym(_source(synonym.source), synonym.name, synonym.value) for synonym in config.synonyms
        ),
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


async def alter_configs(
    client: Client,
    changes: Mapping[ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
) -> Outcomes[ConfigResource, None]:
    """Change settings; those that are not named stay as they are."""

    async def call(connection: Connection, resources: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
        request = alter_api.IncrementalAlterConfigsRequest(
            resources=[_altered(resource, changes[resource]) for resource in resources],
            validate_only=validate_only,
        )
        outcomes: Outcomes[ConfigResource, None] = Outcomes()
        for result in (await connection.send(request, alter_api.IncrementalAlterConfigsResponse)).responses:
            key = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            outcomes.add(key, None, result.error_code, result.error_message)
        return outcomes

    of_one_broker = {resource: resource.node_id for resource in changes if resource.node_id != NO_NODE}
    of_all = [resource for resource in changes if resource.node_id == NO_NODE]
    outcomes = await client.call_nodes(of_one_broker, call)
    outcomes.update(await client.call_controller(of_all, call))
    return outcomes.in_order_of(changes)


def _altered(resource: ConfigResource, changes: Iterable[ConfigChange]) -> alter_api.AlterConfigsResource:
    return alter_api.AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            alter_api.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes
        ],
    )
