"""Metrics: what a broker counts, with real clients, and that measuring ends when no one looks."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.metrics import WATCHED_MS, Distribution, Family, Histogram, Kind, MetricName, Metrics, single
from millrace.steps import Steps, finish, finish_at_once
from millrace.testing import Broker, ManualClock
from millrace.testing.timers import ManualTimers

from .fuzz.raw import RawClient
from .waiting import until

SECONDS = 20
TOPIC = "orders"


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 1.5, 10, 11, 1000):
        histogram.observe(value)
    found = histogram.distribution()
    assert found == Distribution((1, 10), (2, 2, 2), 1024)
    assert found.observations == 6
    histogram.observe(0)
    assert found.observations == 6, "a snapshot does not change"


def test_a_name_is_that_of_an_mbean() -> None:
    name = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec")
    assert str(name) == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"


def test_metrics_are_watched_from_a_snapshot_on_until_none_was_taken_for_long() -> None:
    timers = ManualTimers(ManualClock())
    metrics = Metrics(timers)
    counted = single(MetricName("a", "b", "c"), Kind.COUNTER, 3)

    def collect() -> Steps[list[Family]]:
        yield
        return [counted]

    metrics.add(collect)
    metrics.add(collect)
    assert not metrics.is_watched
    assert finish_at_once(metrics.snapshot()) == [counted, counted]
    assert metrics.is_watched
    timers.advance(WATCHED_MS - 1)
    finish_at_once(metrics.snapshot())
    timers.advance(WATCHED_MS - 1)
    assert metrics.is_watched
    timers.advance(1)
    assert not metrics.is_watched


# A real broker


class Watched:
    """A broker, and its metrics as one mapping: "name{label}" to value."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def values(self) -> dict[str, float | Distribution]:
        work = finish(self.broker.broker.node.metrics.snapshot())
        families = asyncio.run_coroutine_threadsafe(work, self.broker.broker.node.loop).result(SECONDS)
        found: dict[str, float | Distribution] = {}
        for family in families:
            for labels, value in family.samples:
                key = f"{family.name.type}.{family.name.name}" + "".join(f" {one}" for one in labels.values())
                assert key not in found, f"{key} is there twice"
                assert isinstance(value, Distribution) == (family.kind is Kind.HISTOGRAM)
                found[key] = value
        return found

    def number(self, key: str) -> float:
        value = self.values().get(key, 0)
        assert not isinstance(value, Distribution)
        return value

    def times(self, key: str) -> Distribution:
        value = self.values()[key]
        assert isinstance(value, Distribution)
        return value


@pytest.fixture
def watched() -> Iterator[Watched]:
    with Broker({"log.flush.interval.ms": "3600000", "offsets.topic.num.partitions": "3"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(SECONDS)
        yield Watched(broker)


def produce(broker: Broker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5, "linger.ms": 100})
    for number in range(count):
        producer.produce(TOPIC, b"v" * 100, partition=number % 2)
    assert producer.flush(SECONDS) == 0


def test_messages_batches_and_bytes_of_a_topic_are_counted(watched: Watched) -> None:
    produce(watched.broker, 20)
    values = watched.values()
    assert values[f"BrokerTopicMetrics.MessagesInPerSec {TOPIC}"] == 20
    logs = [partition.log for partition in watched.broker.broker.partitions.of_topic(TOPIC)]
    assert values[f"BrokerTopicMetrics.BytesInPerSec {TOPIC}"] == sum(log.size for log in logs)
    batches = values[f"BrokerTopicMetrics.TotalProduceRequestsPerSec {TOPIC}"]
    assert batches == values["RequestMetrics.RequestsPerSec Produce"] == 4
    assert values["ReplicaManager.PartitionCount"] == values["ReplicaManager.LeaderCount"] == 2
    assert values["ReplicaManager.OfflineReplicaCount"] == 0


def request(api_key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(payload)) + payload


API_VERSIONS = request(18, 0, b"")
# Of a topic that does not exist, and may not be created.
UNKNOWN_TOPIC = request(3, 4, struct.pack(">ih", 1, 4) + b"none" + b"\0")


def test_frames_bytes_and_connections_are_counted_to_the_byte() -> None:
    sent = received = 0
    with Broker() as broker:
        watched = Watched(broker)
        for padding in (0, 10, 1_000_000):
            # A large request arrives in several parts.
            frame = request(18, 0, bytes(padding))
            with RawClient(broker.bootstrap) as client:
                client.send(frame)
                sent += len(frame)
                received += 4 + len(client.read_frame())
                assert watched.number("socket-server-metrics.connection-count") == 1
            until(lambda: watched.number("socket-server-metrics.connection-count") == 0)
        expected = {
            "request-total": 3,
            "incoming-byte-total": sent,
            "outgoing-byte-total": received,
            "connection-creation-total": 3,
            "connection-close-total": 3,
        }
        values = watched.values()
        assert {name: values[f"socket-server-metrics.{name}"] for name in expected} == expected


def test_requests_errors_and_times_are_counted_by_api(watched: Watched) -> None:
    with RawClient(watched.broker.bootstrap) as client:
        client.send(API_VERSIONS)
        client.read_frame()
        assert watched.times("RequestMetrics.TotalTimeMs ApiVersions").observations == 0, "not watched yet"
        counted = watched.number("RequestMetrics.RequestsPerSec ApiVersions")
        for _ in range(3):
            client.send(API_VERSIONS)
            client.read_frame()
        for _ in range(2):
            client.send(UNKNOWN_TOPIC)
            client.read_frame()
    values = watched.values()
    assert values["RequestMetrics.RequestsPerSec ApiVersions"] == counted + 3
    times = watched.times("RequestMetrics.TotalTimeMs ApiVersions")
    assert times.observations == 3
    assert times.total > 0
    assert values["RequestMetrics.ErrorsPerSec Metadata UNKNOWN_TOPIC_OR_PARTITION"] == 2
    assert not any(name.startswith("RequestMetrics.ErrorsPerSec ApiVersions") for name in values)


def test_a_long_request_is_measured_like_any_other(watched: Watched) -> None:
    watched.values()
    names = b"".join(struct.pack(">h", 4) + b"%04d" % number for number in range(5000))
    with RawClient(watched.broker.bootstrap) as client:
        client.send(request(3, 4, struct.pack(">i", 5000) + names + b"\0"))
        client.read_frame()
    assert watched.number("RequestMetrics.ErrorsPerSec Metadata UNKNOWN_TOPIC_OR_PARTITION") == 5000
    assert watched.times("RequestMetrics.TotalTimeMs Metadata").observations == 1


def test_the_time_of_a_fetch_includes_its_wait(watched: Watched) -> None:
    watched.values()
    consumer = Consumer(
        {"bootstrap.servers": watched.broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 300}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    assert consumer.poll(0) is None
    until(lambda: watched.number("RequestMetrics.RequestsPerSec Fetch") >= 2)
    times = watched.times("RequestMetrics.TotalTimeMs Fetch")
    consumer.close()
    assert times.observations >= 1
    assert times.total >= 250 * times.observations


def test_flushes_are_timed(watched: Watched) -> None:
    admin = AdminClient({"bootstrap.servers": watched.broker.bootstrap})
    durable = NewTopic("durable", 1, config={"flush.messages": "1"})
    admin.create_topics([durable])["durable"].result(SECONDS)
    before = watched.times("LogFlushStats.LogFlushRateAndTimeMs").observations
    producer = Producer({"bootstrap.servers": watched.broker.bootstrap})
    for _ in range(3):
        producer.produce("durable", b"v")
        assert producer.flush(SECONDS) == 0
    times = watched.times("LogFlushStats.LogFlushRateAndTimeMs")
    assert times.observations - before == 3
    assert times.total > 0


@pytest.mark.parametrize(
    ("protocol", "rebalances"),
    [("classic", "group-completed-rebalance-count"), ("consumer", "consumer-group-rebalance-count")],
)
def test_commits_rebalances_and_loads_of_groups_are_counted(
    watched: Watched, protocol: str, rebalances: str
) -> None:
    produce(watched.broker, 2)
    consumer = Consumer(
        {
            "bootstrap.servers": watched.broker.bootstrap,
            "group.id": "readers",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    assert len([message for message in consumer.consume(2, SECONDS) if message.error() is None]) == 2
    type_ = "group-coordinator-metrics"
    writes = watched.number(f"{type_}.write-count")
    assert watched.number(f"{type_}.{rebalances}") == 1
    assert writes > 0
    consumer.commit(asynchronous=False)
    assert watched.number(f"{type_}.offset-commit-count") == 2
    assert watched.number(f"{type_}.write-count") == writes + 1
    assert watched.number(f"{type_}.num-partitions active") == 3
    assert watched.times(f"{type_}.partition-load-time").observations == 0
    consumer.close()

    watched.broker.restart()
    until(lambda: watched.number(f"{type_}.num-partitions active") == 3)
    # The other partitions are empty.
    assert watched.times(f"{type_}.partition-load-time").observations == 1


def test_writes_of_the_transaction_coordinator_are_counted(watched: Watched) -> None:
    producer = Producer({"bootstrap.servers": watched.broker.bootstrap, "transactional.id": "id"})
    producer.init_transactions(SECONDS)
    writes = watched.number("transaction-coordinator-metrics.write-count")
    assert writes == 1
    producer.begin_transaction()
    producer.produce(TOPIC, b"v", partition=0)
    producer.commit_transaction(SECONDS)
    # A partition joins, the end is decided, and completed.
    assert watched.number("transaction-coordinator-metrics.write-count") == writes + 3


def test_brokers_of_one_process_count_for_themselves(watched: Watched) -> None:
    produce(watched.broker, 2)
    with Broker() as other:
        assert "RequestMetrics.RequestsPerSec Produce" not in Watched(other).values()
