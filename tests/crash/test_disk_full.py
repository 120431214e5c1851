"""A full disk fails writes, not the broker: existing records are served, and deleting makes room."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker, BrokerProcess

from .mounts import mounted
from .stored import read_all, watermarks

TOPIC = "filling"
VALUE = bytes(1000)


def create(bootstrap: str, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=configs)])[topic].result(20)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)


def send(bootstrap: str, topic: str, count: int, *, timeout_ms: int = 20_000) -> int:
    """Send records, each in its own batch; returns how many were acknowledged."""
    acknowledged = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": timeout_ms, "batch.num.messages": 1}
    )
    for _ in range(count):
        producer.produce(topic, VALUE, on_delivery=delivered)
    producer.flush(60)
    return acknowledged


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        create(broker.bootstrap, TOPIC)
        yield broker


def test_a_full_disk_rejects_appends_and_serves_reads(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert send(broker.bootstrap, TOPIC, 10) == 10
    broker.disk.fill(room=2500)
    with caplog.at_level(logging.ERROR):
        late = send(broker.bootstrap, TOPIC, 10, timeout_ms=1500)
    assert late < 10
    assert "No space left on device" in caplog.text
    stored = read_all(broker.bootstrap, TOPIC, 0)
    assert len(stored.values) == 10 + late, "half a batch must not be seen"

    broker.disk.free()
    assert send(broker.bootstrap, TOPIC, 5) == 5
    assert list(read_all(broker.bootstrap, TOPIC, 0).values) == list(range(10 + late + 5))


def test_a_broker_that_is_killed_on_a_full_disk_starts_again(broker: Broker) -> None:
    send(broker.bootstrap, TOPIC, 10)
    broker.disk.fill(room=500)
    send(broker.bootstrap, TOPIC, 1, timeout_ms=500)
    broker.kill9()
    broker.start()
    assert watermarks(broker.bootstrap, TOPIC, 1) == {0: (0, 10)}
    broker.disk.free()
    assert send(broker.bootstrap, TOPIC, 1) == 1


def test_a_topic_whose_metadata_cannot_be_written_is_rejected(broker: Broker) -> None:
    broker.disk.fill()
    with pytest.raises(KafkaException) as refusal:
        create(broker.bootstrap, "another")
    assert refusal.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
    assert "No space left" in str(refusal.value)
    broker.disk.free()
    create(broker.bootstrap, "another")


def test_records_can_be_deleted_on_a_full_disk(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    send(broker.bootstrap, TOPIC, 10)
    broker.disk.fill()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = TopicPartition(TOPIC, 0, 7)
    assert admin.delete_records([asked])[asked].result(20).low_watermark == 7
    assert "cannot checkpoint which records were deleted" in caplog.text
    broker.disk.free()
    assert watermarks(broker.bootstrap, TOPIC, 1) == {0: (7, 10)}


def test_a_failing_write_is_an_error_to_its_producer_alone(broker: Broker) -> None:
    create(broker.bootstrap, "other")
    broker.disk.fail_next_write()
    assert send(broker.bootstrap, TOPIC, 3) == 3, "the client tries again"
    assert send(broker.bootstrap, "other", 3) == 3
    assert len(read_all(broker.bootstrap, TOPIC, 0).values) == 3


def test_a_failing_flush_makes_one_log_read_only_until_the_next_start(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker.bootstrap, "precious", **{"flush.messages": "1"})
    assert send(broker.bootstrap, "precious", 3) == 3
    broker.disk.fail_next_fsync()
    assert send(broker.bootstrap, "precious", 1, timeout_ms=1500) == 0
    assert "cannot flush precious-0" in caplog.text
    assert "a bug" not in caplog.text
    # The record is in the log, although its producer got an error.
    assert len(read_all(broker.bootstrap, "precious", 0).values) == 4
    assert send(broker.bootstrap, TOPIC, 1) == 1
    broker.restart()
    assert send(broker.bootstrap, "precious", 1) == 1
    assert len(read_all(broker.bootstrap, "precious", 0).values) == 5


def test_a_stop_that_could_not_flush_every_log_is_not_marked_as_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / ".kafka_cleanshutdown"
    with Broker(data_dir=tmp_path) as broker:
        create(broker.bootstrap, TOPIC)
        assert send(broker.bootstrap, TOPIC, 1) == 1
        broker.restart()
        assert send(broker.bootstrap, TOPIC, 1) == 1
        broker.disk.fail_next_fsync()
    assert "cannot close the log" in caplog.text
    assert not mark.exists()
    with Broker(data_dir=tmp_path) as broker:
        assert len(read_all(broker.bootstrap, TOPIC, 0).values) == 2
    assert mark.exists()


def fill(path: Path) -> Path:
    filler = path / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def test_deleting_a_topic_makes_room_on_a_disk_that_is_really_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=12m") as path, BrokerProcess(data_dir=path) as broker:
        for topic in (TOPIC, "expendable"):
            create(broker.bootstrap, topic, **{"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"})
        assert send(broker.bootstrap, "expendable", 4000) == 4000
        kept = send(broker.bootstrap, TOPIC, 9000, timeout_ms=3000)
        assert 0 < kept < 9000
        assert len(read_all(broker.bootstrap, TOPIC, 0).values) == kept

        delete(broker.bootstrap, "expendable")
        assert send(broker.bootstrap, TOPIC, 100) == 100
        assert len(read_all(broker.bootstrap, TOPIC, 0).values) == kept + 100


def test_a_broker_starts_and_serves_on_a_disk_that_is_really_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as path:
        broker = BrokerProcess(data_dir=path)
        broker.start()
        create(broker.bootstrap, TOPIC, **{"segment.bytes": str(1 << 20), "index.interval.bytes": "64"})
        assert send(broker.bootstrap, TOPIC, 3000) == 3000
        filler = fill(path)
        broker.kill9()
        broker.start()
        assert len(read_all(broker.bootstrap, TOPIC, 0).values) == 3000
        filler.unlink()
        assert send(broker.bootstrap, TOPIC, 100) == 100
        broker.stop()
        assert "a bug" not in broker.log_file.read_text()
