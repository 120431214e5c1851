"""Transactions of kafka-python."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from millrace.testing import Broker

from .reading import SECONDS, Reading

NewProducer = Callable[..., KafkaProducer]


@pytest.fixture
def new_producer(broker: Broker) -> Iterator[NewProducer]:
    producers: list[KafkaProducer] = []

    def create(transactional_id: str, **settings: Any) -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, **settings
        )
        producers.append(producer)
        producer.init_transactions()
        return producer

    yield create
    for producer in producers:
        producer.close(timeout=1)


def send(producer: KafkaProducer, topic: str, value: bytes) -> None:
    producer.send(topic, value).get(SECONDS)


def test_committed_records_are_read_and_aborted_ones_not(
    new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    producer = new_producer(f"{topic}-id")
    for number in range(4):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    reading.await_committed(topic, [b"0", b"2"])
    assert reading.everything(topic) == [b"0", b"1", b"2", b"3"]


def test_a_newer_producer_fences_the_older_one(
    new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    zombie = new_producer(f"{topic}-id")
    zombie.begin_transaction()
    send(zombie, topic, b"orphan")
    heir = new_producer(f"{topic}-id")
    heir.begin_transaction()
    send(heir, topic, b"heir")
    heir.commit_transaction()
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    reading.await_committed(topic, [b"heir"])


def test_offsets_are_committed_with_the_records(
    broker: Broker, new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    source, sink = f"{topic}-source", f"{topic}-sink"
    producer = new_producer(f"{topic}-id")
    producer.begin_transaction()
    send(producer, source, b"in")
    producer.commit_transaction()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=broker.bootstrap,
        group_id=f"{topic}-group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=int(SECONDS * 1000),
    )
    record = next(consumer)
    producer.begin_transaction()
    send(producer, sink, record.value)
    partition = TopicPartition(source, 0)
    offsets = {partition: OffsetAndMetadata(record.offset + 1, "", -1)}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()
    assert consumer.committed(partition) == record.offset + 1
    consumer.close()
    reading.await_committed(sink, [b"in"])
