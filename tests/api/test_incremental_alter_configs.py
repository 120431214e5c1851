"""IncrementalAlterConfigs: set, delete, append, subtract."""

import logging

import pytest

from millrace.cluster.configs import Operation
from millrace.cluster.resources import ResourceType
from millrace.errors import Error
from millrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ..node import create_topic
from .api import Api
from .conftest import Call

SET, DELETE, APPEND, SUBTRACT = Operation


def change(
    resource_type: int, name: str, *steps: tuple[int, str, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in steps
        ],
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def error_of(response: object) -> Error:
    (result,) = response.responses  # type: ignore[attr-defined]
    return Error(result.error_code)


@pytest.mark.parametrize(
    ("before", "steps", "after"),
    [
        ({}, [(SET, "retention.ms", "5")], {"retention.ms": "5"}),
        ({"retention.ms": "5"}, [(DELETE, "retention.ms", None)], {}),
        ({}, [(DELETE, "nope", None)], {}),
        ({}, [(APPEND, "cleanup.policy", "compact")], {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "compact"},
            [(APPEND, "cleanup.policy", "compact")],
            {"cleanup.policy": "compact"},
        ),
        (
            {"cleanup.policy": "compact,delete"},
            [(SUBTRACT, "cleanup.policy", "compact")],
            {"cleanup.policy": "delete"},
        ),
        (
            {"retention.ms": "5"},
            [(SET, "segment.ms", "7"), (DELETE, "retention.ms", None)],
            {"segment.ms": "7"},
        ),
    ],
)
def test_steps_on_a_topic(
    call: Call, api: Api, before: dict[str, str], steps: list[tuple[int, str, str]], after: dict[str, str]
) -> None:
    create_topic(api, "orders", 1, configs=before)
    assert error_of(call(change(ResourceType.TOPIC, "orders", *steps))) == Error.NONE
    assert api.image.topics["orders"].configs == after


@pytest.mark.parametrize(
    ("resource", "step", "error"),
    [
        ((ResourceType.TOPIC, "orders"), (SET, "nope", "1"), Error.INVALID_CONFIG),
        ((ResourceType.TOPIC, "orders"), (SET, "retention.ms", "x"), Error.INVALID_CONFIG),
        ((ResourceType.TOPIC, "orders"), (SET, "retention.ms", None), Error.INVALID_REQUEST),
        ((ResourceType.TOPIC, "orders"), (APPEND, "retention.ms", "1"), Error.INVALID_CONFIG),
        ((ResourceType.TOPIC, "orders"), (9, "retention.ms", "1"), Error.INVALID_REQUEST),
        ((ResourceType.TOPIC, "none"), (SET, "retention.ms", "1"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        ((ResourceType.TOPIC, ""), (SET, "retention.ms", "1"), Error.INVALID_REQUEST),
        ((ResourceType.BROKER, "1"), (SET, "num.partitions", "3"), Error.INVALID_REQUEST),
        ((ResourceType.BROKER, "1"), (SET, "log.retention.ms", "x"), Error.INVALID_REQUEST),
        ((ResourceType.BROKER, "1"), (SET, "log.retention.mss", "1"), Error.INVALID_CONFIG),
        ((ResourceType.BROKER, ""), (SET, "ssl.keystore.type", "PEM"), Error.INVALID_REQUEST),
        ((ResourceType.BROKER, "7"), (SET, "log.retention.ms", "1"), Error.INVALID_REQUEST),
        ((ResourceType.BROKER_LOGGER, "1"), (SET, "root", "LOUD"), Error.INVALID_CONFIG),
        ((ResourceType.BROKER_LOGGER, "1"), (SET, "no.such.logger", "INFO"), Error.INVALID_CONFIG),
        ((ResourceType.BROKER_LOGGER, "1"), (DELETE, "root", None), Error.INVALID_REQUEST),
    ],
)
def test_refused_steps_change_nothing(
    call: Call, api: Api, resource: tuple[int, str], step: tuple[int, str, str | None], error: Error
) -> None:
    create_topic(api, "orders", 1)
    response = call(change(*resource, step))
    assert error_of(response) == error
    assert response.responses[0].error_message
    assert api.image.topics["orders"].configs == {}
    assert api.config.dynamic == api.config.dynamic_defaults == {}


def test_validating_changes_nothing(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    step = (SET, "retention.ms", "5")
    assert error_of(call(change(ResourceType.TOPIC, "orders", step, validate_only=True))) == Error.NONE
    step = (SET, "log.retention.ms", "5")
    assert error_of(call(change(ResourceType.BROKER, "", step, validate_only=True))) == Error.NONE
    assert api.image.topics["orders"].configs == {}
    assert api.config.log_config({}).retention_ms != 5


def test_one_key_twice_or_one_resource_twice_is_refused(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    step = (SET, "retention.ms", "5")
    assert error_of(call(change(ResourceType.TOPIC, "orders", step, step))) == Error.INVALID_REQUEST
    request = change(ResourceType.TOPIC, "orders", step)
    request.resources *= 2
    assert error_of(call(request)) == Error.INVALID_REQUEST


def test_a_dynamic_broker_config_takes_effect_at_once(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    call(
        change(ResourceType.BROKER, "1", (SET, "message.max.bytes", "500"), (SET, "log.cleaner.threads", "3"))
    )
    assert api.partitions.leader("orders", 0).log.config.max_message_bytes == 500
    assert api.config.log_cleaner_threads == 3
    call(change(ResourceType.BROKER, "1", (DELETE, "message.max.bytes", None)))
    assert api.partitions.leader("orders", 0).log.config.max_message_bytes == 1048588


def test_a_loggers_level_is_set_and_deleted(call: Call) -> None:
    logger = logging.getLogger("millrace.cluster.file_store")
    call(change(ResourceType.BROKER_LOGGER, "1", (SET, logger.name, "ERROR")))
    assert logger.level == logging.ERROR
    call(change(ResourceType.BROKER_LOGGER, "1", (DELETE, logger.name, None)))
    assert logger.level == logging.NOTSET
