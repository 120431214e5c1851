"""AlterConfigs replaces everything that is set on a resource."""

from millrace.cluster.resources import ResourceType
from millrace.errors import Error
from millrace.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource

from ..node import create_topic, finish
from .api import Api
from .conftest import Call


def replace(
    resource_type: int, name: str, configs: dict[str, str | None], validate_only: bool = False
) -> AlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def test_configs_that_are_not_named_are_unset(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1, configs={"retention.ms": "5"})
    (result,) = call(replace(ResourceType.TOPIC, "orders", {"segment.ms": "7"})).responses
    assert (result.error_code, result.error_message) == (Error.NONE, None)
    assert api.image.topics["orders"].configs == {"segment.ms": "7"}


def test_brokers_too(call: Call, api: Api) -> None:
    finish(api.metadata.set_broker_configs("1", {"log.retention.ms": "5"}))
    call(replace(ResourceType.BROKER, "1", {"log.cleaner.threads": "2"}))
    assert api.config.dynamic == {"log.cleaner.threads": "2"}


def test_refusals(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    for request, error in (
        (replace(ResourceType.TOPIC, "none", {}), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(ResourceType.TOPIC, "orders", {"nope": "1"}), Error.INVALID_CONFIG),
        (replace(ResourceType.TOPIC, "orders", {"retention.ms": None}), Error.INVALID_REQUEST),
        (replace(ResourceType.BROKER, "1", {"num.partitions": "2"}), Error.INVALID_REQUEST),
        (replace(ResourceType.BROKER_LOGGER, "1", {"root": "INFO"}), Error.INVALID_REQUEST),
    ):
        (result,) = call(request).responses
        assert result.error_code == error


def test_a_resource_or_a_config_named_twice_stays_as_it_is(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1, configs={"retention.ms": "5"})
    resource = replace(ResourceType.TOPIC, "orders", {"retention.ms": "7"})
    resource.resources *= 2
    config = replace(ResourceType.TOPIC, "orders", {"retention.ms": "7"})
    config.resources[0].configs *= 2
    for request in (resource, config):
        (result,) = call(request).responses
        assert result.error_code == Error.INVALID_REQUEST
    assert api.image.topics["orders"].configs == {"retention.ms": "5"}
