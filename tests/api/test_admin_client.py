"""The admin APIs through librdkafka's own admin client."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from millrace.errors import Error
from millrace.testing import Broker

Result = TypeVar("Result")

TIMEOUT_SECONDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties={"num.partitions": "2"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def only(futures: Mapping[object, Future[Result]]) -> Result:
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def error_code(futures: Mapping[object, Future[object]]) -> int:
    with pytest.raises(KafkaException) as raised:
        only(futures)
    return int(raised.value.args[0].code())


def set_config(
    admin: AdminClient, resource: ConfigResource, name: str, value: str | None, operation: AlterConfigOpType
) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    changed = ConfigResource(resource.restype, resource.name, incremental_configs=[entry])
    only(admin.incremental_alter_configs([changed]))


def test_a_topics_life(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("life", 3, 1, config={"retention.ms": "5000"})]))
    description = only(admin.describe_topics(TopicCollection(["life"])))
    assert len(description.partitions) == 3
    assert description.partitions[0].leader.id == 1
    assert str(description.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"

    only(admin.create_partitions([NewPartitions("life", 5)]))
    assert len(admin.list_topics("life", TIMEOUT_SECONDS).topics["life"].partitions) == 5

    only(admin.delete_topics(["life"]))
    assert "life" not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    assert error_code(admin.delete_topics(["life"])) == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_refusals_reach_the_client_with_their_codes(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("taken", 1, 1)]))
    for topic, code in (
        (NewTopic("taken", 1, 1), Error.TOPIC_ALREADY_EXISTS),
        (NewTopic("a/b", 1, 1), Error.INVALID_TOPIC_EXCEPTION),
        (NewTopic("wide", 1, 3), Error.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd", 1, 1, config={"nope": "1"}), Error.INVALID_CONFIG),
    ):
        assert error_code(admin.create_topics([topic])) == code
    assert error_code(admin.create_partitions([NewPartitions("taken", 1)])) == Error.INVALID_PARTITIONS


def test_defaults_are_the_brokers(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("defaults")]))
    assert len(admin.list_topics("defaults", TIMEOUT_SECONDS).topics["defaults"].partitions) == 2


def test_a_topics_configs(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("configured", 1, 1)]))
    topic = ConfigResource(ResourceType.TOPIC, "configured")
    set_config(admin, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND)
    set_config(admin, topic, "segment.ms", "60000", AlterConfigOpType.SET)
    configs = only(admin.describe_configs([topic]))
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["segment.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert configs["retention.ms"].is_default
    set_config(admin, topic, "segment.ms", None, AlterConfigOpType.DELETE)
    assert only(admin.describe_configs([topic]))["segment.ms"].value == "604800000"


def test_a_brokers_configs_reach_its_topics(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("inherits", 1, 1)]))
    every_broker = ConfigResource(ResourceType.BROKER, "1")
    set_config(admin, every_broker, "log.retention.ms", "7000", AlterConfigOpType.SET)
    configs = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "inherits")]))
    assert configs["retention.ms"].value == "7000"
    set_config(admin, every_broker, "log.retention.ms", None, AlterConfigOpType.DELETE)


def test_the_cluster(admin: AdminClient, broker: Broker) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_SECONDS)
    assert len(cluster.cluster_id) == 22
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert cluster.authorized_operations


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, broker: Broker) -> None:
    only(admin.create_topics([NewTopic("trimmed", 1, 1)]))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("trimmed", str(number), partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    deleted = only(admin.delete_records([TopicPartition("trimmed", 0, 4)]))
    assert deleted.low_watermark == 4


def test_everything_is_there_after_a_kill(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        only(admin.create_topics([NewTopic("kept", 3, 1, config={"retention.ms": "5000"})]))
        only(admin.create_topics([NewTopic("dropped", 1, 1)]))
        only(admin.delete_topics(["dropped"]))
        before = only(admin.describe_topics(TopicCollection(["kept"])))
        broker.kill9()
        broker.restart()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        after = only(admin.describe_topics(TopicCollection(["kept"])))
        assert str(after.topic_id) == str(before.topic_id)
        assert len(after.partitions) == 3
        assert set(admin.list_topics(timeout=TIMEOUT_SECONDS).topics) == {"kept"}
        configs = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "kept")]))
        assert configs["retention.ms"].value == "5000"
