"""Administering with aiokafka."""

from collections.abc import AsyncIterator

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import Clients

NO_ERROR = 0
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture
async def admin(clients: Clients) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = await clients.admin()
    yield admin
    await admin.close()


async def test_create_list_describe_and_delete_a_topic(admin: AIOKafkaAdminClient, topic: str) -> None:
    created = await admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    assert [answer[1] for answer in created.topic_errors] == [NO_ERROR]
    again = await admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    assert [answer[1] for answer in again.topic_errors] == [TOPIC_ALREADY_EXISTS]
    assert topic in await admin.list_topics()
    assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 3
    deleted = await admin.delete_topics([topic])
    assert [answer[1] for answer in deleted.topic_error_codes] == [NO_ERROR]
    assert topic not in await admin.list_topics()


async def test_partitions_can_be_added(admin: AIOKafkaAdminClient, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    await admin.create_partitions({topic: NewPartitions(5)})
    assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 5


async def test_configs_are_described_and_altered(
    admin: AIOKafkaAdminClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    async def retention() -> str:
        (answer,) = await admin.describe_configs([resource])
        entries = answer.resources[0][4]
        return str(next(entry[1] for entry in entries if entry[0] == "retention.ms"))

    assert await retention() == "604800000"
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234"})])
    assert await retention() == "1234"


async def test_records_are_deleted_up_to_an_offset(
    clients: Clients, admin: AIOKafkaAdminClient, topic: str
) -> None:
    await clients.fill(topic, 100)
    partition = TopicPartition(topic, 0)
    assert await admin.delete_records({partition: RecordsToDelete(before_offset=30)}) == {partition: 30}
    consumer = await clients.consumer(topic)
    assert await consumer.beginning_offsets([partition]) == {partition: 30}


async def test_the_cluster_is_described(admin: AIOKafkaAdminClient, broker: Broker) -> None:
    cluster = await admin.describe_cluster()
    assert [f"{node['host']}:{node['port']}" for node in cluster["brokers"]] == [broker.bootstrap]
