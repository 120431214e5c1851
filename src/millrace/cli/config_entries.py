"""Configuration as brokers report it: entries with their sources and synonyms."""

from dataclasses import dataclass
from enum import IntEnum

from millrace.cli.client import Client
from millrace.cli.errors import check
from millrace.wire.messages import describe_configs as api

DEFAULTS_OF_ALL_BROKERS = ""


class ResourceType(IntEnum):
    """What configuration can belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class Source(IntEnum):
    """Where a value comes from, under Kafka's names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, a broker, the defaults of all brokers, or a broker's loggers."""

    type: ResourceType
    name: str

    @property
    def node_id(self) -> int | None:
        """The broker that alone can answer for it."""
        only_there = self.type is not ResourceType.TOPIC and self.name != DEFAULTS_OF_ALL_BROKERS
        return int(self.name) if only_there else None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with its value, where it comes from, and what it would be without that."""

    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    synonyms: tuple[tuple[Source, str, str | None], ...]

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


def topic_resource(name: str) -> Resource:
    """The configuration of a topic."""
    return Resource(ResourceType.TOPIC, name)


def describe_configs(client: Client, resources: list[Resource]) -> dict[str, list[ConfigEntry]]:
    """The settings of resources that the same broker can answer for, by the resources' names."""
    request = api.DescribeConfigsRequest(
        resources=[
            api.DescribeConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configuration_keys=None
            )
            for resource in resources
        ],
        include_synonyms=True,
    )
    node_id = resources[0].node_id
    connection = client.bootstrap if node_id is None else client.broker(node_id)
    described = {}
    for result in connection.send(request, api.DescribeConfigsResponse).results:
        check(result.error_code, result.error_message)
        described[result.resource_name] = [_entry(config) for config in result.configs]
    return described


def _entry(config: api.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        is_sensitive=config.is_sensitive,
        synonyms=tuple((_source(item.source), item.name, item.value) for item in config.synonyms),
    )


def _source(number: int) -> Source:
    try:
        return Source(number)
    except ValueError:
        return Source.UNKNOWN
