"""Producing with librdkafka."""

import time

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
)

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import Clients


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_level_of_acknowledgement(clients: Clients, topic: str, acks: str) -> None:
    clients.deliver(clients.producer(acks=acks), topic, b"value")
    assert clients.read(clients.consumer(topic), 1)[0].value() == b"value"


def test_acknowledgement_carries_partition_and_offset(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    producer = clients.producer()
    offsets = [clients.deliver(producer, topic, b"value", partition=2).offset() for _ in range(3)]
    assert offsets == [0, 1, 2]


def test_key_value_headers_and_timestamp_come_back(clients: Clients, topic: str) -> None:
    headers = [("color", b"blue"), ("color", b"green"), ("empty", b""), ("null", None), ("ключ", b"\x00\xff")]
    clients.deliver(clients.producer(), topic, b"value", key=b"key", headers=headers, timestamp=123_456_789)
    message = clients.read(clients.consumer(topic), 1)[0]
    assert (message.key(), message.value()) == (b"key", b"value")
    assert message.headers() == headers
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 123_456_789)


def test_null_and_empty_are_distinguished(clients: Clients, topic: str) -> None:
    producer = clients.producer()
    pairs = [(b"key", None), (b"key", b""), (None, b"value"), (b"", b"value"), (None, None)]
    for key, value in pairs:
        clients.deliver(producer, topic, value, key=key)
    assert [
        (message.key(), message.value()) for message in clients.read(clients.consumer(topic), len(pairs))
    ] == pairs


def test_the_same_key_goes_to_the_same_partition(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=5)
    producer = clients.producer()
    partitions = [
        [clients.deliver(producer, topic, b"", key=b"%d" % key).partition() for _ in "ab"]
        for key in range(20)
    ]
    assert all(first == second for first, second in partitions)
    assert len({first for first, _ in partitions}) > 1


def test_idempotent_producer_keeps_the_order_of_many_records(clients: Clients, topic: str) -> None:
    values = clients.fill(clients.producer(enable_idempotence=True, batch_num_messages=50), topic, 2000)
    assert [message.value() for message in clients.read(clients.consumer(topic), 2000)] == values


def test_a_record_just_under_the_limit_is_accepted(clients: Clients, topic: str) -> None:
    value = bytes(range(256)) * 4090
    clients.deliver(clients.producer(message_max_bytes=2_000_000), topic, value)
    assert clients.read(clients.consumer(topic), 1)[0].value() == value


def test_a_record_over_the_limit_is_rejected_and_the_producer_continues(clients: Clients, topic: str) -> None:
    producer = clients.producer(message_max_bytes=4_000_000)
    with pytest.raises(KafkaException) as refused:
        clients.deliver(producer, topic, bytes(1_200_000))
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert clients.deliver(producer, topic, b"small").offset() == 0


def test_a_topic_s_own_limit_applies(clients: Clients, create_topic: CreateTopic) -> None:
    producer = clients.producer(message_max_bytes=4_000_000)
    generous, narrow = create_topic(max_message_bytes=3_000_000), create_topic(max_message_bytes=1000)
    assert clients.deliver(producer, generous, bytes(2_500_000)).offset() == 0
    with pytest.raises(KafkaException) as refused:
        clients.deliver(producer, narrow, bytes(1001))
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_compacted_topic_refuses_records_without_a_key(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(cleanup_policy="compact")
    producer = clients.producer()
    with pytest.raises(KafkaException) as refused:
        clients.deliver(producer, topic, b"value")
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
    assert clients.deliver(producer, topic, b"value", key=b"key").offset() == 0


def test_the_broker_s_time_applies_with_log_append_time(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    acknowledged = clients.deliver(clients.producer(), topic, b"value", timestamp=42)
    kind, timestamp = clients.read(clients.consumer(topic), 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= time.time() * 1000
    assert acknowledged.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, timestamp)


@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", ["none", "snappy"])
def test_a_topic_s_compression_type_recompresses(
    clients: Clients, create_topic: CreateTopic, stored: str, sent: str
) -> None:
    topic = create_topic(compression_type=stored)
    values = clients.fill(clients.producer(compression_type=sent, linger_ms=20), topic, 200, size=50)
    assert [message.value() for message in clients.read(clients.consumer(topic), 200)] == values


def test_producing_creates_the_topic(clients: Clients, topic: str) -> None:
    assert clients.deliver(clients.producer(), topic, b"value").offset() == 0


def test_producing_to_a_missing_partition_fails_at_the_client(
    clients: Clients, create_topic: CreateTopic
) -> None:
    with pytest.raises(KafkaException) as refused:
        clients.deliver(clients.producer(), create_topic(partitions=2), b"value", partition=7)
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_a_bad_topic_name_is_refused(clients: Clients) -> None:
    with pytest.raises(KafkaException) as refused:
        clients.deliver(clients.producer(message_timeout_ms=10_000), "no spaces, please", b"value")
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_without_auto_creation_an_unknown_topic_is_an_error(topic: str) -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        clients = Clients(broker)
        producer = clients.producer(topic_metadata_propagation_max_ms=1)
        with pytest.raises(KafkaException) as refused:
            clients.deliver(producer, topic, b"value")
        clients.close()
    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
