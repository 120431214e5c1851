"""Transactions of confluent-kafka (librdkafka), which speaks the old protocol."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from millrace.testing import Broker

from .conftest import NewTopics
from .reading import SECONDS, Reading

NewProducer = Callable[..., Producer]


@pytest.fixture
def new_producer(broker: Broker) -> Callable[..., Producer]:
    def create(transactional_id: str, **settings: Any) -> Producer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 2}
            | named
        )
        producer.init_transactions(SECONDS)
        return producer

    return create


def produce(producer: Producer, topic: str, *values: bytes) -> None:
    """Produce and wait until the records are in the log."""
    for value in values:
        producer.produce(topic, value)
    producer.flush(SECONDS)


def test_committed_records_are_read_and_aborted_ones_not(
    new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(1)
    producer = new_producer(f"{topic}-id")
    for number in range(6):
        producer.begin_transaction()
        produce(producer, topic, b"%d-a" % number, b"%d-b" % number)
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    assert reading.committed(topic) == [b"0-a", b"0-b", b"2-a", b"2-b", b"4-a", b"4-b"]
    assert len(reading.everything(topic)) == 12
    assert not reading.is_open(topic)


def test_an_open_transaction_holds_back_readers_of_committed_records(
    new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(1)
    one, other = new_producer(f"{topic}-one"), new_producer(f"{topic}-other")
    one.begin_transaction()
    other.begin_transaction()
    produce(one, topic, b"one")
    produce(other, topic, b"other")
    other.commit_transaction(SECONDS)
    assert reading.committed(topic) == []
    assert reading.is_open(topic)
    one.commit_transaction(SECONDS)
    assert reading.committed(topic) == [b"one", b"other"]


def test_a_transaction_spans_partitions_and_topics(
    broker: Broker, new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(5)
    producer = new_producer(f"{topic}-id", linger_ms=0)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 5)
    producer.commit_transaction(SECONDS)
    assert sorted(reading.committed(topic)) == sorted(b"%d" % number for number in range(20))


def test_a_newer_producer_fences_the_older_one(
    new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(1)
    zombie = new_producer(f"{topic}-id")
    zombie.begin_transaction()
    produce(zombie, topic, b"orphan")
    heir = new_producer(f"{topic}-id")
    heir.begin_transaction()
    produce(heir, topic, b"heir")
    heir.commit_transaction(SECONDS)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS)
    error = refused.value.args[0]
    assert error.fatal() and error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert reading.committed(topic) == [b"heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(1)
    producer = new_producer(f"{topic}-id", transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.begin_transaction()
    produce(producer, topic, b"slow")
    deadline = time.monotonic() + SECONDS
    while reading.is_open(topic):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    assert reading.committed(topic) == []


def test_a_timeout_beyond_the_limit_is_refused(broker: Broker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "patient",
            "transaction.timeout.ms": 1_000_000,
            "log_level": 2,
        }
    )
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(SECONDS)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_offsets_are_committed_with_the_records_or_not_at_all(
    broker: Broker, new_producer: NewProducer, new_topic: NewTopics, reading: Reading
) -> None:
    topic = new_topic(2)
    producer = new_producer(f"{topic}-id")
    producer.begin_transaction()
    for number in range(4):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.commit_transaction(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    outcomes = [False, True]
    for committed in outcomes:
        message = consumer.poll(SECONDS)
        assert message is not None and message.error() is None and message.value() == b"0"
        producer.begin_transaction()
        producer.produce(topic, b"answer", partition=1)
        positions = [position for position in consumer.position(consumer.assignment()) if position.offset > 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
        if committed:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
            for partition in consumer.committed(consumer.assignment(), SECONDS):
                assert partition.offset < 0
                partition.offset = 0
                consumer.seek(partition)
    offsets = {each.partition: each.offset for each in consumer.committed(consumer.assignment(), SECONDS)}
    consumer.close()
    assert offsets[0] == 1
    assert reading.committed(topic).count(b"answer") == 1
