"""Consuming by assignment with aiokafka."""

import asyncio
import time

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from ..conftest import CreateTopic
from .clients import Clients


@pytest.fixture
async def numbers(clients: Clients, topic: str) -> str:
    """A topic with the records 0 to 99 at the timestamps 1,000,000 to 1,000,099."""
    await clients.fill(topic, 100, max_batch_size=200)
    return topic


async def test_reading_from_the_beginning_returns_everything_in_order(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers, offset=None, auto_offset_reset="earliest")
    records = await clients.read(consumer, 100)
    assert [record.offset for record in records] == list(range(100))
    assert [int(record.value) for record in records] == list(range(100))


async def test_the_position_can_be_moved(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    for offset in (90, 3, 50):
        consumer.seek(partition, offset)
        assert (await clients.read(consumer, 1))[0].offset == offset
    assert await consumer.position(partition) == 51
    await consumer.seek_to_beginning(partition)
    assert await consumer.position(partition) == 0
    await consumer.seek_to_end(partition)
    assert await consumer.position(partition) == 100


async def test_beyond_the_end_the_reset_policy_decides(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers, offset=5000, auto_offset_reset="earliest")
    assert (await clients.read(consumer, 1))[0].value == b"0"


async def test_beyond_the_end_without_a_reset_is_an_error(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers, offset=5000, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRangeError):
        await clients.read(consumer, 1)


async def test_offsets_are_found_by_time(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    found = [
        (await consumer.offsets_for_times({partition: timestamp}))[partition]
        for timestamp in (0, 1_000_042, 1_000_100)
    ]
    assert [match and match.offset for match in found] == [0, 42, None]


async def test_beginning_and_end_offsets_are_the_ends_of_the_log(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    assert await consumer.beginning_offsets([partition]) == {partition: 0}
    assert await consumer.end_offsets([partition]) == {partition: 100}
    await clients.read(consumer, 1)
    assert consumer.highwater(partition) == 100


async def test_a_paused_partition_is_silent_until_resumed(
    clients: Clients, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    producer = await clients.producer()
    consumer = await clients.consumer(topic, partitions=(0, 1), fetch_max_wait_ms=50)
    consumer.pause(TopicPartition(topic, 0))
    for partition in (0, 1):
        await producer.send_and_wait(topic, b"value", partition=partition)
    assert [record.partition for record in await clients.read(consumer, 1)] == [1]
    assert await consumer.getmany(timeout_ms=200) == {}
    consumer.resume(TopicPartition(topic, 0))
    assert [record.partition for record in await clients.read(consumer, 1)] == [0]


async def test_several_partitions_are_read_together(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=5)
    producer = await clients.producer()
    sent = [await producer.send(topic, b"%d" % number, partition=number % 5) for number in range(500)]
    await asyncio.gather(*sent)
    consumer = await clients.consumer(topic, partitions=(0, 1, 2, 3, 4))
    values: dict[int, list[int]] = {}
    for record in await clients.read(consumer, 500):
        values.setdefault(record.partition, []).append(int(record.value))
    assert values == {partition: list(range(partition, 500, 5)) for partition in range(5)}


async def test_a_waiting_consumer_gets_a_record_at_once(clients: Clients, topic: str) -> None:
    producer = await clients.producer()
    await producer.send_and_wait(topic, b"first")
    consumer = await clients.consumer(topic, fetch_max_wait_ms=20_000)
    await clients.read(consumer, 1)
    waiting = asyncio.create_task(clients.read(consumer, 1))
    sent = time.monotonic()
    await producer.send_and_wait(topic, b"second")
    assert (await waiting)[0].value == b"second"
    assert time.monotonic() - sent < 5


async def test_batches_over_the_fetch_limits_still_arrive(clients: Clients, topic: str) -> None:
    values = await clients.fill(topic, 40, size=5000, max_batch_size=50_000, linger_ms=20)
    consumer = await clients.consumer(topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000)
    assert [record.value for record in await clients.read(consumer, 40)] == values


async def test_read_committed_sees_plain_records(clients: Clients, numbers: str) -> None:
    consumer = await clients.consumer(numbers, isolation_level="read_committed")
    assert len(await clients.read(consumer, 100)) == 100
