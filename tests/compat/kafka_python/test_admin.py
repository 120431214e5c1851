"""Administering with kafka-python."""

import uuid
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import SECONDS, Clients


@pytest.fixture
def admin(clients: Clients) -> KafkaAdminClient:
    return clients.admin()


def test_create_list_describe_and_delete_a_topic(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 3, "configs": {"retention.ms": "3600000"}}})
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_the_old_way_to_name_a_new_topic_works(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2


def test_a_topic_is_described_and_deleted_by_its_id(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic])
    topic_id = uuid.UUID(admin.describe_topics([topic])[0]["topic_id"])
    assert admin.describe_topics([topic_id])[0]["name"] == topic
    admin.delete_topics([topic_id])
    assert topic not in admin.list_topics()


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("not a name", {}, InvalidTopicError),
        ("no-partitions", {"num_partitions": 0}, InvalidPartitionsError),
        ("too-many-replicas", {"replication_factor": 3}, InvalidReplicationFactorError),
        ("bad-config", {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
    ],
)
def test_invalid_topics_are_rejected_with_kafka_s_code(
    admin: KafkaAdminClient, name: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics({name: options})


def test_a_topic_is_created_once_and_deleted_once(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_partitions_can_be_added_but_not_removed(admin: KafkaAdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    admin.create_partitions({topic: 5})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 5
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 3})


def test_configs_are_described_and_altered(admin: KafkaAdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(retention_ms=1234)

    def described(name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        configs = admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return str(configs[name]["value"])

    def alter(name: str, operation: str, value: str | None) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: (operation, value)})
        outcome = str(admin.alter_configs([resource])["topic"][topic])
        return outcome if "Error" in outcome else described(name)

    assert described("retention.ms") == "1234"
    assert alter("segment.ms", "SET", "5000") == "5000"
    assert alter("cleanup.policy", "APPEND", "compact") == "delete,compact"
    assert alter("cleanup.policy", "SUBTRACT", "delete") == "compact"
    assert alter("retention.ms", "DELETE", None) == "604800000"
    assert "InvalidConfigurationError" in alter("retention.ms", "SET", "soon")


def test_records_are_deleted_up_to_an_offset(clients: Clients, admin: KafkaAdminClient, topic: str) -> None:
    clients.fill(topic, 100)
    partition = TopicPartition(topic, 0)
    assert admin.delete_records({partition: 30})[partition]["low_watermark"] == 30
    assert clients.consumer(topic).beginning_offsets([partition]) == {partition: 30}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 5000})


def test_offsets_are_listed_by_every_specification(
    clients: Clients, admin: KafkaAdminClient, topic: str
) -> None:
    clients.fill(topic, 10)
    partition = TopicPartition(topic, 0)

    def offset(specification: Any) -> int:
        return int(admin.list_partition_offsets({partition: specification})[partition].offset)

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 10
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(OffsetSpec.EARLIEST_LOCAL) == 0
    assert offset(OffsetSpec.LATEST_TIERED) == -1
    assert offset(1_000_004) == 4


def test_the_cluster_is_described(admin: KafkaAdminClient, broker: Broker) -> None:
    cluster = admin.describe_cluster()
    assert [f"{node['host']}:{node['port']}" for node in cluster["brokers"]] == [broker.bootstrap]
    assert cluster["cluster_id"]


def test_log_directories_are_described(
    clients: Clients, admin: KafkaAdminClient, broker: Broker, topic: str
) -> None:
    clients.producer().send(topic, bytes(1000)).get(SECONDS)
    assert str(broker.data_dir) in str(admin.describe_log_dirs())
