"""Segments that are deleted by hand: the broker says what is lost, and takes no records that would be."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from ..waiting import until
from .stored import read_all

TOPIC = "orders"
PATIENCE_SECONDS = 20
SHORT_SECONDS = 1.5


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        yield broker


def create(broker: Broker, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, config=configs)])[TOPIC].result(PATIENCE_SECONDS)


def send(broker: Broker, numbers: range, seconds: float = PATIENCE_SECONDS) -> list[int]:
    """Send records, each in a batch of its own; those that were acknowledged."""
    acknowledged: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(int(message.value().split()[0]))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "batch.num.messages": 1,
            "message.timeout.ms": int(seconds * 1000),
        }
    )
    for number in numbers:
        producer.produce(TOPIC, value_of(number), on_delivery=delivered)
    producer.flush(PATIENCE_SECONDS)
    return acknowledged


def value_of(number: int) -> bytes:
    return b"%d " % number + b"v" * 800


def stored(broker: Broker) -> list[int]:
    return [int(value.split()[0]) for value in read_all(broker.bootstrap, TOPIC, 0).values.values()]


def segments(broker: Broker) -> list[Path]:
    return sorted((broker.data_dir / f"{TOPIC}-0").glob("*.log"))


def test_a_deleted_active_segment_takes_no_more_records_and_can_be_saved(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker)
    kept = send(broker, range(20))
    assert kept == list(range(20))
    (active,) = segments(broker)
    active.unlink()
    kept += send(broker, range(20, 21))
    until(lambda: "was deleted, moved or replaced under the running broker" in caplog.text)
    assert str(active) in caplog.text
    assert send(broker, range(30, 33), SHORT_SECONDS) == []
    assert stored(broker) == kept

    (line,) = [record.getMessage() for record in caplog.records if "cp /proc" in record.getMessage()]
    subprocess.run(shlex.split(line.partition("(")[2].partition(")")[0]), check=True)
    broker.restart()
    assert stored(broker) == kept
    assert send(broker, range(40, 43)) == [40, 41, 42]


def test_a_record_that_must_be_on_disk_is_not_acknowledged_into_a_deleted_file(broker: Broker) -> None:
    create(broker, **{"flush.messages": "1"})
    assert send(broker, range(3)) == [0, 1, 2]
    (active,) = segments(broker)
    active.unlink()
    assert send(broker, range(3, 4), SHORT_SECONDS) == []
