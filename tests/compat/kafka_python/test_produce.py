"""Producing with kafka-python."""

from typing import Any

import pytest
from kafka.errors import InvalidRecordError, MessageSizeTooLargeError

from ..conftest import CreateTopic
from .clients import SECONDS, Clients


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_level_of_acknowledgement(
    clients: Clients, create_topic: CreateTopic, acks: int | str
) -> None:
    topic = create_topic()
    producer = clients.producer(acks=acks, enable_idempotence=False)
    producer.send(topic, b"value").get(SECONDS)
    assert clients.read(clients.consumer(topic), 1)[0].value == b"value"


def test_key_value_headers_and_timestamp_come_back(clients: Clients, topic: str) -> None:
    headers = [("color", b"blue"), ("color", b"green"), ("empty", b"")]
    sent = clients.producer().send(topic, b"value", key=b"key", headers=headers, timestamp_ms=123_456_789)
    assert (sent.get(SECONDS).partition, sent.get(SECONDS).offset) == (0, 0)
    record = clients.read(clients.consumer(topic), 1)[0]
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 123_456_789)
    assert list(record.headers) == headers


def test_null_and_empty_are_distinguished(clients: Clients, topic: str) -> None:
    producer = clients.producer()
    pairs = [(b"key", None), (b"key", b""), (None, b"value"), (b"", b"value")]
    for key, value in pairs:
        producer.send(topic, value, key=key).get(SECONDS)
    assert [(record.key, record.value) for record in clients.read(clients.consumer(topic), 4)] == pairs


@pytest.mark.parametrize("settings", [{"enable_idempotence": True}, {"enable_idempotence": False}], ids=str)
def test_many_records_keep_their_order(clients: Clients, topic: str, settings: dict[str, Any]) -> None:
    values = clients.fill(topic, 1000, batch_size=500, max_in_flight_requests_per_connection=1, **settings)
    assert [record.value for record in clients.read(clients.consumer(topic), 1000)] == values


def test_a_record_just_under_the_limit_is_accepted(clients: Clients, topic: str) -> None:
    value = bytes(range(256)) * 4090
    clients.producer(max_request_size=2_000_000).send(topic, value).get(SECONDS)
    assert clients.read(clients.consumer(topic), 1)[0].value == value


def test_a_record_over_the_limit_is_rejected_and_the_producer_continues(clients: Clients, topic: str) -> None:
    producer = clients.producer(max_request_size=4_000_000, enable_idempotence=False)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, bytes(1_200_000)).get(SECONDS)
    assert producer.send(topic, b"small").get(SECONDS).offset == 0


def test_a_compacted_topic_refuses_records_without_a_key(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(cleanup_policy="compact")
    producer = clients.producer(enable_idempotence=False)
    with pytest.raises(InvalidRecordError):
        producer.send(topic, b"value").get(SECONDS)
    assert producer.send(topic, b"value", key=b"key").get(SECONDS).offset == 0


def test_the_broker_s_time_applies_with_log_append_time(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")
    sent = clients.producer().send(topic, b"value", timestamp_ms=42).get(SECONDS)
    record = clients.read(clients.consumer(topic), 1)[0]
    assert (record.timestamp_type, record.timestamp) == (1, sent.timestamp)
    assert record.timestamp > 1_700_000_000_000
