"""Producing with aiokafka."""

import pytest
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from ..conftest import CreateTopic
from .clients import Clients


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_arrive_with_every_level_of_acknowledgement(
    clients: Clients, topic: str, acks: int | str
) -> None:
    producer = await clients.producer(acks=acks)
    await producer.send_and_wait(topic, b"value")
    assert (await clients.read(await clients.consumer(topic), 1))[0].value == b"value"


async def test_key_value_headers_and_timestamp_come_back(clients: Clients, topic: str) -> None:
    producer = await clients.producer()
    headers = [("color", b"blue"), ("color", b"green"), ("empty", b"")]
    sent = await producer.send_and_wait(
        topic, b"value", key=b"key", headers=headers, timestamp_ms=123_456_789
    )
    assert (sent.partition, sent.offset) == (0, 0)
    (record,) = await clients.read(await clients.consumer(topic), 1)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 123_456_789)
    assert list(record.headers) == headers


async def test_null_and_empty_are_distinguished(clients: Clients, topic: str) -> None:
    producer = await clients.producer()
    pairs = [(b"key", None), (b"key", b""), (None, b"value"), (b"", b"value")]
    for key, value in pairs:
        await producer.send_and_wait(topic, value, key=key)
    records = await clients.read(await clients.consumer(topic), len(pairs))
    assert [(record.key, record.value) for record in records] == pairs


@pytest.mark.parametrize("idempotent", [True, False])
async def test_many_records_keep_their_order(clients: Clients, topic: str, idempotent: bool) -> None:
    values = await clients.fill(topic, 1000, enable_idempotence=idempotent, max_batch_size=500)
    records = await clients.read(await clients.consumer(topic), 1000)
    assert [record.value for record in records] == values


async def test_a_record_just_under_the_limit_is_accepted(clients: Clients, topic: str) -> None:
    producer = await clients.producer(max_request_size=2_000_000, max_batch_size=2_000_000)
    value = bytes(range(256)) * 4090
    await producer.send_and_wait(topic, value)
    consumer = await clients.consumer(topic, max_partition_fetch_bytes=2_000_000)
    assert (await clients.read(consumer, 1))[0].value == value


async def test_a_record_over_the_limit_is_rejected_and_the_producer_continues(
    clients: Clients, topic: str
) -> None:
    producer = await clients.producer(max_request_size=4_000_000, max_batch_size=4_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, bytes(1_200_000))
    assert (await producer.send_and_wait(topic, b"small")).offset == 0


async def test_a_compacted_topic_refuses_records_without_a_key(
    clients: Clients, create_topic: CreateTopic
) -> None:
    topic = create_topic(cleanup_policy="compact")
    producer = await clients.producer()
    with pytest.raises(KafkaError):
        await producer.send_and_wait(topic, b"value")
    assert (await producer.send_and_wait(topic, b"value", key=b"key")).offset == 0


async def test_the_broker_s_time_applies_with_log_append_time(
    clients: Clients, create_topic: CreateTopic
) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")
    producer = await clients.producer()
    sent = await producer.send_and_wait(topic, b"value", timestamp_ms=42)
    (record,) = await clients.read(await clients.consumer(topic), 1)
    assert (record.timestamp_type, record.timestamp) == (1, sent.timestamp)
    assert record.timestamp > 1_700_000_000_000


async def test_a_batch_built_by_hand_is_accepted(clients: Clients, topic: str) -> None:
    producer = await clients.producer()
    batch = producer.create_batch()
    for number in range(10):
        batch.append(key=None, value=b"%d" % number, timestamp=None)
    batch.close()
    await (await producer.send_batch(batch, topic, partition=0))
    records = await clients.read(await clients.consumer(topic), 10)
    assert [int(record.value) for record in records] == list(range(10))
