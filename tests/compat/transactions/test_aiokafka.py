"""Transactions of aiokafka, which speaks the first versions of every request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from millrace.testing import Broker

from .reading import SECONDS, Reading

NewProducer = Callable[..., Awaitable[AIOKafkaProducer]]


@pytest.fixture
async def new_producer(broker: Broker) -> AsyncIterator[NewProducer]:
    producers: list[AIOKafkaProducer] = []

    async def create(transactional_id: str, **settings: Any) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, **settings
        )
        producers.append(producer)
        await producer.start()
        return producer

    yield create
    for producer in producers:
        await producer.stop()


async def test_committed_records_are_read_and_aborted_ones_not(
    new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    producer = await new_producer(f"{topic}-id")
    for number in range(4):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"%d" % number)
        if number % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    assert await asyncio.to_thread(reading.committed, topic) == [b"0", b"2"]
    assert await asyncio.to_thread(reading.everything, topic) == [b"0", b"1", b"2", b"3"]


async def test_an_exception_aborts(new_producer: NewProducer, topic: str, reading: Reading) -> None:
    producer = await new_producer(f"{topic}-id")
    with pytest.raises(ZeroDivisionError):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"lost")
            raise ZeroDivisionError
    async with producer.transaction():
        await producer.send_and_wait(topic, b"kept")
    assert await asyncio.to_thread(reading.committed, topic) == [b"kept"]


async def test_a_newer_producer_fences_the_older_one(
    new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    zombie = await new_producer(f"{topic}-id")
    await zombie.begin_transaction()
    await zombie.send_and_wait(topic, b"orphan")
    heir = await new_producer(f"{topic}-id")
    async with heir.transaction():
        await heir.send_and_wait(topic, b"heir")
    with pytest.raises(ProducerFenced):
        await zombie.commit_transaction()
    assert await asyncio.to_thread(reading.committed, topic) == [b"heir"]


async def test_a_transaction_that_takes_too_long_is_aborted(
    new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    producer = await new_producer(f"{topic}-id", transaction_timeout_ms=1000)
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"slow")
    async with asyncio.timeout(SECONDS):
        while await asyncio.to_thread(reading.is_open, topic):
            await asyncio.sleep(0.05)
    with pytest.raises(KafkaError):
        await producer.commit_transaction()
    assert await asyncio.to_thread(reading.committed, topic) == []


async def test_a_read_committed_consumer_skips_aborted_records(
    broker: Broker, new_producer: NewProducer, topic: str
) -> None:
    producer = await new_producer(f"{topic}-id")
    for value in (b"kept", b"lost", b"last"):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value)
        await (producer.abort_transaction() if value == b"lost" else producer.commit_transaction())
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    async with asyncio.timeout(SECONDS):
        values = [(await consumer.getone()).value for _ in range(2)]
    await consumer.stop()
    assert values == [b"kept", b"last"]


async def test_offsets_are_committed_with_the_records(
    broker: Broker, new_producer: NewProducer, topic: str, reading: Reading
) -> None:
    source, sink = f"{topic}-source", f"{topic}-sink"
    producer = await new_producer(f"{topic}-id")
    async with producer.transaction():
        await producer.send_and_wait(source, b"in")
    group = f"{topic}-group"
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    async with asyncio.timeout(SECONDS):
        record = await consumer.getone()
    async with producer.transaction():
        await producer.send_and_wait(sink, record.value)
        await producer.send_offsets_to_transaction({TopicPartition(source, 0): record.offset + 1}, group)
    assert await consumer.committed(TopicPartition(source, 0)) == record.offset + 1
    await consumer.stop()
    assert await asyncio.to_thread(reading.committed, sink) == [b"in"]
