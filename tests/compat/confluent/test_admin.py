"""Administering with librdkafka's admin client."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import Clients


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The single result of an admin call for one resource."""
    (future,) = futures.values()
    return future.result(20)


def code(error: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(error.value.args[0].code())


def test_create_list_describe_and_delete_a_topic(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "3600000"})]))
    assert len(admin.list_topics(timeout=20).topics[topic].partitions) == 3
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(len(partition.isr) == 1 and partition.leader for partition in described.partitions)
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=20).topics


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topic": "not a name"}, KafkaError.TOPIC_EXCEPTION),
        ({"topic": "x" * 250}, KafkaError.TOPIC_EXCEPTION),
        ({"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
        ({"replication_factor": 3}, KafkaError.INVALID_REPLICATION_FACTOR),
        ({"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"no.such.config": "1"}}, KafkaError.INVALID_CONFIG),
    ],
    ids=["bad name", "long name", "no partitions", "too many replicas", "bad config", "unknown config"],
)
def test_invalid_topics_are_rejected_with_kafka_s_code(
    admin: AdminClient, topic: str, wrong: dict[str, Any], error: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        only(admin.create_topics([NewTopic(**({"topic": topic, "num_partitions": 1} | wrong))]))
    assert code(refused) == error


def test_a_topic_is_created_once(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1)]))
    with pytest.raises(KafkaException) as refused:
        only(admin.create_topics([NewTopic(topic, 1)]))
    assert code(refused) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validating_creates_nothing(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=20).topics


def test_a_replica_assignment_is_accepted(admin: AdminClient, topic: str) -> None:
    node = next(iter(admin.list_topics(timeout=20).brokers))
    only(admin.create_topics([NewTopic(topic, 2, replica_assignment=[[node], [node]])]))
    partitions = admin.list_topics(timeout=20).topics[topic].partitions
    assert [partition.replicas for partition in partitions.values()] == [[node], [node]]


def test_an_unknown_topic_can_neither_be_described_nor_deleted(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        only(admin.describe_topics(TopicCollection([topic])))
    assert code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException) as refused:
        only(admin.delete_topics([topic], operation_timeout=1))
    assert code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_can_be_added_but_not_removed(admin: AdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 5
    for count in (5, 3):
        with pytest.raises(KafkaException) as refused:
            only(admin.create_partitions([NewPartitions(topic, count)]))
        assert code(refused) == KafkaError.INVALID_PARTITIONS


def test_a_topic_s_configs_have_their_sources(admin: AdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(retention_ms=1234)
    configs = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["retention.ms"].value == "1234"
    assert ConfigSource(configs["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    assert {"segment.bytes", "max.message.bytes", "compression.type", "min.insync.replicas"} <= set(configs)


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_setting_all_configs_replaces_them(admin: AdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(retention_ms=1234)
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "5000"})]))
    configs = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["segment.ms"].value == "5000"
    assert configs["retention.ms"].value == "604800000"


def test_single_configs_are_set_appended_to_subtracted_from_and_deleted(
    admin: AdminClient, create_topic: CreateTopic
) -> None:
    topic = create_topic(retention_ms=1234, cleanup_policy="delete")

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> str:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        only(admin.incremental_alter_configs([resource]))
        return str(only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[name].value)

    assert alter("segment.ms", "5000", AlterConfigOpType.SET) == "5000"
    assert alter("cleanup.policy", "compact", AlterConfigOpType.APPEND) == "delete,compact"
    assert alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT) == "compact"
    assert alter("retention.ms", None, AlterConfigOpType.DELETE) == "604800000"


def test_an_invalid_config_is_rejected(admin: AdminClient, create_topic: CreateTopic) -> None:
    entry = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, create_topic(), incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        only(admin.incremental_alter_configs([resource]))
    assert code(refused) == KafkaError.INVALID_CONFIG


def test_the_broker_describes_its_configs(admin: AdminClient) -> None:
    node = next(iter(admin.list_topics(timeout=20).brokers))
    configs = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]))
    assert configs["log.retention.hours"].value == "168"
    assert configs["log.dirs"].is_read_only
    assert "num.partitions" in configs


def test_deleted_records_are_gone_for_readers(clients: Clients, admin: AdminClient, topic: str) -> None:
    clients.fill(clients.producer(), topic, 100)
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 30)]))
    assert deleted.low_watermark == 30
    consumer = clients.consumer(topic, auto_offset_reset="earliest")
    assert clients.read(consumer, 1)[0].offset() == 30
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (30, 100)


def test_records_beyond_the_end_cannot_be_deleted(clients: Clients, admin: AdminClient, topic: str) -> None:
    clients.fill(clients.producer(), topic, 3)
    with pytest.raises(KafkaException) as refused:
        only(admin.delete_records([TopicPartition(topic, 0, 30)]))
    assert code(refused) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_every_specification(clients: Clients, admin: AdminClient, topic: str) -> None:
    clients.fill(clients.producer(), topic, 10)

    def offset(specification: OffsetSpec) -> int:
        return int(only(admin.list_offsets({TopicPartition(topic, 0): specification})).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.for_timestamp(1_000_004)) == 4
    assert offset(OffsetSpec.for_timestamp(2_000_000)) == -1


def test_the_cluster_is_described(admin: AdminClient, broker: Broker) -> None:
    cluster = admin.describe_cluster().result(20)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id
