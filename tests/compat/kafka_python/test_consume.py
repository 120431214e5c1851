"""Consuming by assignment with kafka-python."""

import time

import pytest
from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import SECONDS, Clients


@pytest.fixture
def numbers(clients: Clients, topic: str) -> str:
    """A topic with the records 0 to 99 at the timestamps 1,000,000 to 1,000,099."""
    clients.fill(topic, 100, batch_size=200)
    return topic


def test_reading_from_the_beginning_returns_everything_in_order(clients: Clients, numbers: str) -> None:
    records = clients.read(clients.consumer(numbers, offset=None, auto_offset_reset="earliest"), 100)
    assert [record.offset for record in records] == list(range(100))
    assert [int(record.value) for record in records] == list(range(100))


def test_a_topic_can_be_subscribed_to_without_a_group(clients: Clients, broker: Broker, numbers: str) -> None:
    consumer = clients.consumer(numbers, auto_offset_reset="earliest", consumer_timeout_ms=1000)
    consumer.unsubscribe()
    consumer.subscribe([numbers])
    assert next(consumer).value == b"0"


def test_the_position_can_be_moved(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    for offset in (90, 3, 50):
        consumer.seek(partition, offset)
        assert clients.read(consumer, 1)[0].offset == offset
    assert consumer.position(partition) == 51
    consumer.seek_to_beginning(partition)
    assert consumer.position(partition) == 0
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100


@pytest.mark.parametrize(("reset", "position"), [("earliest", 0), ("latest", 100)])
def test_beyond_the_end_the_reset_policy_decides(
    clients: Clients, numbers: str, reset: str, position: int
) -> None:
    consumer = clients.consumer(numbers, offset=5000, auto_offset_reset=reset, max_poll_records=1)
    partition = TopicPartition(numbers, 0)
    deadline = time.monotonic() + SECONDS
    while consumer.position(partition) == 5000:
        assert time.monotonic() < deadline
        consumer.poll(timeout_ms=100)
    assert consumer.position(partition) in (position, position + 1)


def test_beyond_the_end_without_a_reset_is_an_error(clients: Clients, numbers: str) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        clients.read(clients.consumer(numbers, offset=5000, auto_offset_reset="none"), 1)


def test_offsets_are_found_by_time(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    found = [
        consumer.offsets_for_times({partition: timestamp})[partition]
        for timestamp in (0, 1_000_042, 1_000_099, 1_000_100)
    ]
    assert [match and (match.offset, match.timestamp) for match in found] == [
        (0, 1_000_000),
        (42, 1_000_042),
        (99, 1_000_099),
        None,
    ]


def test_beginning_and_end_offsets_are_the_ends_of_the_log(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    partition = TopicPartition(numbers, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    clients.read(consumer, 1)
    assert consumer.highwater(partition) == 100


def test_a_paused_partition_is_silent_until_resumed(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    producer = clients.producer()
    consumer = clients.consumer(topic, partitions=(0, 1), fetch_max_wait_ms=50)
    consumer.pause(TopicPartition(topic, 0))
    for partition in (0, 1):
        producer.send(topic, b"value", partition=partition).get(SECONDS)
    assert [record.partition for record in clients.read(consumer, 1)] == [1]
    assert consumer.poll(timeout_ms=200) == {}
    consumer.resume(TopicPartition(topic, 0))
    assert [record.partition for record in clients.read(consumer, 1)] == [0]


def test_several_partitions_are_read_together(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=5)
    producer = clients.producer()
    for number in range(500):
        producer.send(topic, b"%d" % number, partition=number % 5)
    producer.flush(SECONDS)
    consumer = clients.consumer(topic, partitions=(0, 1, 2, 3, 4))
    assert consumer.partitions_for_topic(topic) == {0, 1, 2, 3, 4}
    values: dict[int, list[int]] = {}
    for record in clients.read(consumer, 500):
        values.setdefault(record.partition, []).append(int(record.value))
    assert values == {partition: list(range(partition, 500, 5)) for partition in range(5)}


def test_a_waiting_consumer_gets_a_record_at_once(clients: Clients, topic: str) -> None:
    producer = clients.producer()
    producer.send(topic, b"first").get(SECONDS)
    consumer = clients.consumer(topic, fetch_max_wait_ms=20_000, request_timeout_ms=60_000)
    clients.read(consumer, 1)
    assert consumer.poll(timeout_ms=100) == {}
    sent = time.monotonic()
    producer.send(topic, b"second").get(SECONDS)
    assert clients.read(consumer, 1)[0].value == b"second"
    assert time.monotonic() - sent < 5


@pytest.mark.parametrize("limit", ["max_partition_fetch_bytes", "fetch_max_bytes"])
def test_batches_over_the_fetch_limits_still_arrive(clients: Clients, topic: str, limit: str) -> None:
    values = clients.fill(topic, 40, size=5000, batch_size=50_000, linger_ms=50)
    consumer = clients.consumer(topic, **{limit: 1000})
    assert [record.value for record in clients.read(consumer, 40)] == values


def test_a_consumer_may_create_the_topic_it_reads(clients: Clients, topic: str) -> None:
    consumer = clients.consumer(topic, fetch_max_wait_ms=50, metadata_max_age_ms=100, retry_backoff_ms=10)
    consumer.partitions_for_topic(topic)
    clients.producer().send(topic, b"value").get(SECONDS)
    assert clients.read(consumer, 1)[0].value == b"value"


def test_read_committed_sees_plain_records(clients: Clients, numbers: str) -> None:
    assert len(clients.read(clients.consumer(numbers, isolation_level="read_committed"), 100)) == 100
