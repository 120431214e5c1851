"""Consuming by assignment with librdkafka."""

import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from millrace.testing import Broker

from ..conftest import CreateTopic
from .clients import Clients


@pytest.fixture
def numbers(clients: Clients, topic: str) -> str:
    """A topic with the records 0 to 99 at the timestamps 1,000,000 to 1,000,099."""
    clients.fill(clients.producer(batch_num_messages=10), topic, 100)
    return topic


def test_reading_from_the_beginning_returns_everything_in_order(clients: Clients, numbers: str) -> None:
    messages = clients.read(clients.consumer(numbers, offset=OFFSET_BEGINNING), 100)
    assert [message.offset() for message in messages] == list(range(100))
    assert [int(message.value()) for message in messages] == list(range(100))


def test_reading_begins_at_the_given_offset(clients: Clients, numbers: str) -> None:
    assert clients.read(clients.consumer(numbers, offset=57), 1)[0].value() == b"57"


def test_reading_from_the_end_returns_only_new_records(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers, offset=OFFSET_END, enable_partition_eof=True)
    clients.await_end(consumer)
    clients.deliver(clients.producer(), numbers, b"new")
    assert clients.read(consumer, 1)[0].value() == b"new"


def test_beyond_the_end_the_reset_policy_may_go_back_to_the_beginning(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers, offset=5000, auto_offset_reset="earliest")
    assert clients.read(consumer, 1)[0].value() == b"0"


def test_beyond_the_end_the_reset_policy_may_go_to_the_end(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers, offset=5000, auto_offset_reset="latest", enable_partition_eof=True)
    clients.await_end(consumer)
    clients.deliver(clients.producer(), numbers, b"new")
    assert clients.read(consumer, 1)[0].offset() == 100


def test_beyond_the_end_without_a_reset_is_an_error(clients: Clients, numbers: str) -> None:
    with pytest.raises(KafkaException) as failure:
        clients.read(clients.consumer(numbers, offset=5000, auto_offset_reset="error"), 1)
    assert failure.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_seek_goes_back_and_forth(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    clients.read(consumer, 10)
    for offset in (90, 3, 50):
        consumer.seek(TopicPartition(numbers, 0, offset))
        assert clients.read(consumer, 1)[0].offset() == offset
    assert consumer.position([TopicPartition(numbers, 0)])[0].offset == 51


def test_offsets_are_found_by_time(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    times = (0, 1_000_042, 1_000_100)
    found = [
        consumer.offsets_for_times([TopicPartition(numbers, 0, time_ms)], timeout=20)[0] for time_ms in times
    ]
    assert [partition.offset for partition in found] == [0, 42, OFFSET_END]
    consumer.seek(found[1])
    assert clients.read(consumer, 1)[0].timestamp()[1] == 1_000_042


def test_watermarks_are_the_ends_of_the_log(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers)
    assert consumer.get_watermark_offsets(TopicPartition(numbers, 0), timeout=20) == (0, 100)
    clients.read(consumer, 1)
    assert consumer.get_watermark_offsets(TopicPartition(numbers, 0), cached=True) == (0, 100)


def test_a_paused_partition_is_silent_until_resumed(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    producer = clients.producer()
    consumer = clients.consumer(topic, partitions=(0, 1), fetch_wait_max_ms=100)
    consumer.pause([TopicPartition(topic, 0)])
    for partition in (0, 1):
        clients.deliver(producer, topic, b"value", partition=partition)
    assert [message.partition() for message in clients.read(consumer, 1)] == [1]
    assert consumer.poll(0.3) is None
    consumer.resume([TopicPartition(topic, 0)])
    assert [message.partition() for message in clients.read(consumer, 1)] == [0]


def test_several_partitions_and_topics_are_read_together(clients: Clients, create_topic: CreateTopic) -> None:
    topics = [create_topic(partitions=3) for _ in range(2)]
    producer = clients.producer()
    for topic in topics:
        for partition in range(3):
            clients.fill(producer, topic, 50, partition=partition)
    consumer = clients.consumer(topics[0])
    every = [TopicPartition(topic, partition, 0) for topic in topics for partition in range(3)]
    consumer.assign(every)
    offsets: dict[tuple[str, int], list[int]] = {}
    for message in clients.read(consumer, 300):
        offsets.setdefault((message.topic(), message.partition()), []).append(message.offset())
    assert len(offsets) == 6
    assert all(of_one == list(range(50)) for of_one in offsets.values())


def test_a_hundred_partitions_in_one_consumer(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=100)
    producer = clients.producer()
    for number in range(1000):
        producer.produce(topic, b"%d" % number, partition=number % 100)
    assert producer.flush(30) == 0
    messages = clients.read(clients.consumer(topic, partitions=tuple(range(100))), 1000)
    assert sorted(int(message.value()) for message in messages) == list(range(1000))


def test_a_waiting_consumer_gets_a_record_at_once(clients: Clients, broker: Broker, topic: str) -> None:
    producer = clients.producer()
    clients.deliver(producer, topic, b"first")
    # Each fetch waits for up to a minute: only a wake-up delivers the record in time.
    consumer = clients.consumer(topic, fetch_wait_max_ms=60_000, socket_timeout_ms=120_000)
    clients.read(consumer, 1)
    await_parked_fetch(broker, topic)
    sent = time.monotonic()
    clients.deliver(producer, topic, b"second")
    assert clients.read(consumer, 1)[0].value() == b"second"
    assert time.monotonic() - sent < 5


def await_parked_fetch(broker: Broker, topic: str) -> None:
    partition = broker.broker.partitions.leader(topic, 0)
    deadline = time.monotonic() + 20
    while not partition.parked:
        assert time.monotonic() < deadline, "no fetch waits at the broker"
        time.sleep(0.005)


def test_a_fetch_waits_for_enough_bytes(clients: Clients, broker: Broker, topic: str) -> None:
    producer = clients.producer()
    clients.deliver(producer, topic, b"small")
    consumer = clients.consumer(
        topic, fetch_min_bytes=50_000, fetch_wait_max_ms=60_000, socket_timeout_ms=120_000
    )
    assert consumer.poll(0) is None
    await_parked_fetch(broker, topic)
    assert consumer.poll(0) is None
    clients.deliver(producer, topic, bytes(60_000))
    assert [len(message.value()) for message in clients.read(consumer, 2)] == [5, 60_000]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_partition_fetch_bytes": 1000},
        {"fetch_max_bytes": 1000, "message_max_bytes": 1000},
    ],
    ids=["per partition", "per fetch"],
)
def test_batches_over_the_fetch_limits_still_arrive(
    clients: Clients, topic: str, limits: dict[str, object]
) -> None:
    values = clients.fill(clients.producer(linger_ms=100), topic, 60, size=5000)
    consumer = clients.consumer(topic, **limits)
    assert [message.value() for message in clients.read(consumer, 60)] == values


def test_a_consumer_may_create_the_topic_it_reads(clients: Clients, topic: str) -> None:
    consumer = clients.consumer(topic, allow_auto_create_topics=True, topic_metadata_refresh_interval_ms=100)
    consumer.poll(0.1)
    assert topic in consumer.list_topics(timeout=20).topics
    clients.deliver(clients.producer(), topic, b"value")
    assert clients.read(consumer, 1)[0].value() == b"value"


def test_a_consumer_creates_no_topics_by_default(clients: Clients, topic: str) -> None:
    consumer = clients.consumer(topic)
    consumer.poll(0)
    for _ in range(2):
        error = consumer.list_topics(topic, timeout=20).topics[topic].error
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_read_committed_sees_plain_records(clients: Clients, numbers: str) -> None:
    assert len(clients.read(clients.consumer(numbers, isolation_level="read_committed"), 100)) == 100


def test_the_end_of_a_partition_is_reported(clients: Clients, numbers: str) -> None:
    consumer = clients.consumer(numbers, enable_partition_eof=True)
    clients.read(consumer, 100)
    clients.await_end(consumer)
