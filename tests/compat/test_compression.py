"""Every compression codec, produced by each client and read by each."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from millrace.testing import Broker

from .aiokafka.clients import Clients as AioKafka
from .confluent.clients import Clients as Confluent
from .conftest import CreateTopic
from .kafka_python.clients import Clients as KafkaPython

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's codec numbers, in the lowest bits of a batch's attributes."""
ATTRIBUTES_POSITION = 22

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]
"""Key, value, headers and timestamp of a record."""


def rows() -> Iterator[Row]:
    """Records of all shapes: repetitive, random, empty, null."""
    source = random.Random(1)
    for number in range(300):
        key = source.choice([None, b"", b"key %d" % (number % 7)])
        shapes = [None, b"", b"abc" * source.randrange(500), source.randbytes(source.randrange(1000))]
        value = source.choice(shapes) if key else source.choice(shapes[1:])
        headers = (("trace", source.randbytes(4)), ("kind", b"test")) if number % 3 else ()
        yield key, value, headers, 1_600_000_000_000 + number


ROWS = list(rows())


def produce_with_confluent(broker: Broker, topic: str, codec: str) -> None:
    clients = Confluent(broker)
    producer = clients.producer(compression_type=codec, linger_ms=50)
    for key, value, headers, timestamp in ROWS:
        producer.produce(topic, value, key=key, headers=list(headers), timestamp=timestamp, partition=0)
    assert producer.flush(30) == 0


def produce_with_kafka_python(broker: Broker, topic: str, codec: str) -> None:
    clients = KafkaPython(broker)
    producer = clients.producer(compression_type=None if codec == "none" else codec, linger_ms=50)
    sent = [
        producer.send(topic, value, key=key, headers=list(headers), timestamp_ms=timestamp, partition=0)
        for key, value, headers, timestamp in ROWS
    ]
    for future in sent:
        future.get(30)
    clients.close()


def produce_with_aiokafka(broker: Broker, topic: str, codec: str) -> None:
    async def produce() -> None:
        clients = AioKafka(broker)
        producer = await clients.producer(compression_type=None if codec == "none" else codec, linger_ms=50)
        sent = [
            await producer.send(topic, value, key, 0, timestamp, list(headers))
            for key, value, headers, timestamp in ROWS
        ]
        await asyncio.gather(*sent)
        await clients.close()

    asyncio.run(produce())


def read_with_confluent(broker: Broker, topic: str) -> list[Row]:
    clients = Confluent(broker)
    records = clients.read(clients.consumer(topic, check_crcs=True), len(ROWS))
    clients.close()
    return [
        (record.key(), record.value(), tuple(record.headers() or ()), record.timestamp()[1])
        for record in records
    ]


def read_with_kafka_python(broker: Broker, topic: str) -> list[Row]:
    clients = KafkaPython(broker)
    records = clients.read(clients.consumer(topic, check_crcs=True), len(ROWS))
    clients.close()
    return [row(record) for record in records]


def read_with_aiokafka(broker: Broker, topic: str) -> list[Row]:
    async def read() -> list[Any]:
        clients = AioKafka(broker)
        records = await clients.read(await clients.consumer(topic, check_crcs=True), len(ROWS))
        await clients.close()
        return records

    return [row(record) for record in asyncio.run(read())]


def row(record: Any) -> Row:
    return record.key, record.value, tuple(record.headers), record.timestamp


PRODUCERS = {
    "confluent": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_client_reads_what_another_compressed(
    broker: Broker, create_topic: CreateTopic, producer: str, codec: str
) -> None:
    topic = create_topic()
    PRODUCERS[producer](broker, topic, codec)
    assert read_with_confluent(broker, topic) == ROWS
    assert read_with_kafka_python(broker, topic) == ROWS
    assert read_with_aiokafka(broker, topic) == ROWS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_batch_is_stored_as_it_was_compressed(
    broker: Broker, create_topic: CreateTopic, producer: str, codec: str
) -> None:
    topic = create_topic()
    PRODUCERS[producer](broker, topic, codec)
    stored = next((broker.data_dir / f"{topic}-0").glob("*.log")).read_bytes()
    assert stored[ATTRIBUTES_POSITION] & 0b111 == CODECS[codec]
