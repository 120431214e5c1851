from millrace.admin.configs import (
    BROKER_DEFAULTS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ResourceType,
    alter_configs,
    describe_configs,
    topic_resource,
)
from millrace.client import Client, UnknownBroker
from millrace.errors import Error

from ..waiting import until_async
from .conftest import NODE_ID

BROKER = ConfigResource(ResourceType.BROKER, str(NODE_ID))


async def entry(client: Client, resource: ConfigResource, name: str) -> ConfigEntry | None:
    entries = (await describe_configs(client, [resource]))[resource]
    return next((entry for entry in entries if entry.name == name), None)


async def test_a_change_and_its_removal_are_seen(client: Client, topic: str) -> None:
    resource = topic_resource(topic)
    (await alter_configs(client, {resource: [ConfigChange("segment.bytes", "2000000")]})).all()

    async def is_changed() -> bool:
        changed = await entry(client, resource, "segment.bytes")
        return changed is not None and changed.value == "2000000"

    await until_async(is_changed)
    changed = await entry(client, resource, "segment.bytes")
    assert changed is not None
    assert changed.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [synonym.source for synonym in changed.synonyms] == [
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    removal = ConfigChange("segment.bytes", operation=ConfigOperation.DELETE)
    (await alter_configs(client, {resource: [removal]})).all()

    async def is_default() -> bool:
        restored = await entry(client, resource, "segment.bytes")
        return restored is not None and restored.is_default

    await until_async(is_default)


async def test_validating_changes_nothing(client: Client, topic: str) -> None:
    resource = topic_resource(topic)
    change = ConfigChange("retention.ms", "1000")
    (await alter_configs(client, {resource: [change]}, validate_only=True)).all()
    unchanged = await entry(client, resource, "retention.ms")
    assert unchanged is not None
    assert unchanged.is_default


async def test_one_resource_fails_and_the_others_are_changed(client: Client, topic: str) -> None:
    wrong = topic_resource("absent")
    changes = {
        wrong: [ConfigChange("retention.ms", "1")],
        topic_resource(topic): [ConfigChange("retention.ms", "soon")],
        ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS): [ConfigChange("log.retention.ms", "3600000")],
    }
    altered = await alter_configs(client, changes)
    assert list(altered.succeeded) == [ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS)]
    assert altered.failed[wrong].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert altered.failed[topic_resource(topic)].error is Error.INVALID_CONFIG


async def test_a_broker_tells_its_own_configuration(client: Client) -> None:
    node_id = await entry(client, BROKER, "node.id")
    assert node_id is not None
    assert node_id.value == str(NODE_ID)
    assert node_id.is_read_only
    loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(NODE_ID))
    assert (await describe_configs(client, [loggers]))[loggers]
    absent = ConfigResource(ResourceType.BROKER, "99")
    described = await describe_configs(client, [absent, BROKER])
    assert isinstance(described.failed[absent], UnknownBroker)
    assert described[BROKER]


async def test_a_topic_that_does_not_exist_has_no_configuration(client: Client, topic: str) -> None:
    described = await describe_configs(client, [topic_resource("absent"), topic_resource(topic)])
    assert described.failed[topic_resource("absent")].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert described[topic_resource(topic)]
