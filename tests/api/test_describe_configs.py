"""DescribeConfigs: values, where they come from, and everything tools print of them."""

from typing import Any

import pytest

from millrace.cluster.configs import ConfigSource
from millrace.cluster.resources import ResourceType
from millrace.config import Kind
from millrace.errors import Error
from millrace.steps import finish_at_once
from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from ..node import Node, create_topic, finish
from .api import Api
from .conftest import Call


def ask(resource_type: int, name: str, keys: list[str] | None = None, **more: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], **more)


def configs(response: Any) -> dict[str, Any]:
    (result,) = response.results
    assert result.error_code == Error.NONE, result.error_message
    return {config.name: config for config in result.configs}


def synonyms(config: Any) -> list[tuple[int, str, str | None]]:
    return [(synonym.source, synonym.name, synonym.value) for synonym in config.synonyms]


def test_a_topics_configs_with_their_sources_and_synonyms(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1, configs={"segment.bytes": "5000"})
    found = configs(call(ask(ResourceType.TOPIC, "orders", include_synonyms=True)))
    assert len(found) == 33
    own, inherited = found["segment.bytes"], found["max.message.bytes"]
    assert (own.value, own.config_source, own.config_type) == ("5000", ConfigSource.DYNAMIC_TOPIC, Kind.INT)
    assert synonyms(own) == [
        (ConfigSource.DYNAMIC_TOPIC, "segment.bytes", "5000"),
        (ConfigSource.DEFAULT, "log.segment.bytes", "1073741824"),
    ]
    assert inherited.config_source == ConfigSource.DEFAULT
    assert synonyms(inherited) == [(ConfigSource.DEFAULT, "message.max.bytes", "1048588")]
    # As Kafka reports it: log.retention.ms has no default of its own, and log.retention.hours is left out.
    assert synonyms(found["retention.ms"]) == []
    assert not any(config.read_only or config.is_sensitive for config in found.values())


def test_every_layer_is_a_synonym_strongest_first(node: Node) -> None:
    from millrace.api import describe_configs

    api = Api(node, {"log.retention.hours": "100"})
    create_topic(api, "orders", 1)
    finish(api.metadata.set_broker_configs("", {"log.retention.ms": "7000"}))
    finish(api.metadata.set_broker_configs("1", {"log.retention.ms": "5000"}))
    expected = [
        (ConfigSource.DYNAMIC_BROKER, "log.retention.ms", "5000"),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, "log.retention.ms", "7000"),
        (ConfigSource.STATIC_BROKER, "log.retention.hours", "100"),
        (ConfigSource.DEFAULT, "log.retention.hours", "168"),
    ]
    for resource_type, name, key in (
        (ResourceType.TOPIC, "orders", "retention.ms"),
        (ResourceType.BROKER, "1", "log.retention.ms"),
    ):
        asked = ask(resource_type, name, [key], include_synonyms=True)
        config = configs(finish_at_once(describe_configs.handle(api.context(), asked)))[key]
        assert (config.value, config.config_source) == ("5000", ConfigSource.DYNAMIC_BROKER)
        assert synonyms(config) == expected
    api.loop.close()


def test_a_brokers_configs(call: Call, api: Api) -> None:
    found = configs(call(ask(ResourceType.BROKER, "1")))
    assert found["num.partitions"].read_only
    assert found["log.retention.ms"].value is None
    assert not found["log.retention.ms"].read_only
    assert (found["node.id"].value, found["broker.id"].value) == ("1", "1")
    assert found["num.network.threads"].value == "3"
    assert found["ssl.keystore.password"].is_sensitive
    assert found["auto.create.topics.enable"].config_source == ConfigSource.STATIC_BROKER
    assert found["auto.create.topics.enable"].synonyms == []


def test_configs_of_all_brokers_are_described(call: Call, api: Api) -> None:
    assert configs(call(ask(ResourceType.BROKER, ""))) == {}
    finish(api.metadata.set_broker_configs("", {"log.cleaner.threads": "2"}))
    (config,) = configs(call(ask(ResourceType.BROKER, ""))).values()
    assert (config.name, config.value) == ("log.cleaner.threads", "2")
    assert config.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_the_levels_of_loggers(call: Call) -> None:
    found = configs(call(ask(ResourceType.BROKER_LOGGER, "1")))
    assert "root" in found
    assert found["millrace.cluster.file_store"].value in ("DEBUG", "INFO", "WARN", "ERROR")


def test_single_keys_can_be_requested(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    found = configs(call(ask(ResourceType.TOPIC, "orders", ["retention.ms", "nope"])))
    assert list(found) == ["retention.ms"]
    assert len(configs(call(ask(ResourceType.TOPIC, "orders", [])))) == 33


def test_documentation_is_included_on_request(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    assert configs(call(ask(ResourceType.TOPIC, "orders")))["retention.ms"].documentation is None
    found = configs(call(ask(ResourceType.TOPIC, "orders", include_documentation=True)))
    assert all(config.documentation for config in found.values())


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (ResourceType.TOPIC, "none", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "a/b", Error.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "7", Error.INVALID_REQUEST),
        (ResourceType.BROKER, "x", Error.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", Error.INVALID_REQUEST),
        (99, "x", Error.INVALID_REQUEST),
    ],
)
def test_missing_resources_are_errors(call: Call, resource_type: int, name: str, error: Error) -> None:
    (result,) = call(ask(resource_type, name)).results
    assert result.error_code == error
    assert (result.resource_type, result.resource_name) == (resource_type, name)
