"""Segments deleted by hand: the broker reports lost offsets, and accepts no records that would be lost."""

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
    with Broker(
        {"offsets.topic.num.partitions": "1", "log.flush.offset.checkpoint.interval.ms": "50"}
    ) as broker:
        yield broker


def create(broker: Broker, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, config=configs)])[TOPIC].result(PATIENCE_SECONDS)


def send(broker: Broker, numbers: range, seconds: float = PATIENCE_SECONDS) -> list[int]:
    """Send records, each in its own batch; returns those that were acknowledged."""
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


def test_a_deleted_active_segment_accepts_no_more_records_and_can_be_saved(
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


SMALL_SEGMENTS = {"segment.bytes": "5000", "flush.ms": "1"}
MISSING = "are missing: the segments that held them were deleted or damaged"


def missing(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The losses that the broker has reported, as "partition: offsets"."""
    lines = [record.getMessage() for record in caplog.records if MISSING in record.getMessage()]
    return {
        Path(line.partition(": ")[0]).name + line.partition(":")[2].partition(" are ")[0] for line in lines
    }


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_deleted_segments_are_reported_at_the_start_with_their_offsets(
    broker: Broker, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = broker.data_dir / "recovery-point-offset-checkpoint"
    create(broker, **SMALL_SEGMENTS)
    assert len(send(broker, range(40))) == 40
    until(lambda: checkpoint.exists() and f"{TOPIC} 0 40" in checkpoint.read_text())
    broker.stop() if clean else broker.kill9()
    first, second, third, *others, last = segments(broker)
    for path in (first, third, last):
        path.unlink()
    broker.start()
    second_base, after_third = int(second.stem), int(others[0].stem)
    expected = {
        f"{TOPIC}-0 offsets 0 to {second_base - 1}",
        f"{TOPIC}-0 offsets {int(third.stem)} to {after_third - 1}",
        f"{TOPIC}-0 offsets {int(last.stem)} to 39",
    }
    until(lambda: missing(caplog) == expected, seconds=20)
    # The remaining records are served.
    lost = {*range(second_base), *range(int(third.stem), after_third), *range(int(last.stem), 40)}
    assert stored(broker) == [number for number in range(40) if number not in lost]
