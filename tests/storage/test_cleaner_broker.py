"""A compacted topic through a whole broker, with a real client, across a kill -9."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from ..reading import read_topic

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


def produce(broker: Broker, rounds: range) -> None:
    # Batches must fit into the small segments.
    options = {"bootstrap.servers": broker.bootstrap, "batch.size": 4000, "enable.idempotence": True}
    producer = Producer(options)
    errors: list[KafkaError | None] = []
    for number in rounds:
        for key in range(20):
            producer.produce(
                "table",
                b"%d" % number + b"." * 100,
                b"key-%d" % key,
                on_delivery=lambda error, _: errors.append(error),
            )
    assert producer.flush(10) == 0
    assert not any(errors)


def read_table(broker: Broker) -> tuple[dict[bytes, bytes], list[int]]:
    records = list(read_topic(broker.bootstrap, "table"))
    return {record.key(): record.value() for record in records}, [record.offset() for record in records]


def wait_until_compacted(broker: Broker, written: int) -> list[int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        _, offsets = read_table(broker)
        if len(offsets) < written / 2:
            return offsets
        time.sleep(0.1)
    raise AssertionError("the topic was not compacted")


def test_a_compacted_topic_keeps_its_latest_values(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("table", 1, config=CONFIG)])["table"].result(10)
    produce(broker, range(50))
    offsets = wait_until_compacted(broker, 1000)
    assert offsets == sorted(offsets)

    broker.kill9()
    broker.start()
    produce(broker, range(50, 60))
    table, offsets = read_table(broker)
    assert table == {b"key-%d" % key: b"59" + b"." * 100 for key in range(20)}
    assert offsets[-1] == 1199
