"""A broker without free descriptors serves its connections, logs the shortage, and recovers later."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import BrokerProcess

from .stored import read_all

TOPIC = "many-files"
PARTITIONS = 10
PATIENCE_SECONDS = 30
# Descriptors left for the broker under the limit.
SPARE_FILES = 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess({"offsets.topic.num.partitions": "1"}, data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": "8000"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE_SECONDS)
        send(broker, 1000)
        yield broker


def send(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, bytes(500), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_SECONDS) == 0


def limit_files(broker: BrokerProcess, spare: int | None) -> None:
    process = psutil.Process(broker.pid)
    _, hard = process.rlimit(resource.RLIMIT_NOFILE)
    # Descriptors are numbered from the lowest free one on.
    limit = hard if spare is None else process.num_fds() + spare
    process.rlimit(resource.RLIMIT_NOFILE, (limit, hard))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stored_records(broker: BrokerProcess, patience_seconds: float = PATIENCE_SECONDS) -> int:
    return sum(
        len(read_all(broker.bootstrap, TOPIC, index, patience_seconds=patience_seconds).values)
        for index in range(PARTITIONS)
    )


def test_new_clients_wait_for_a_descriptor_and_the_others_are_served(broker: BrokerProcess) -> None:
    limit_files(broker, SPARE_FILES)
    crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(2 * SPARE_FILES)]
    try:
        eventually(lambda: "too many open files" in broker.log_file.read_text())
        line = next(
            line for line in broker.log_file.read_text().splitlines() if "too many open files" in line
        )
        assert "ulimit -n" in line
    finally:
        for client in crowd:
            client.close()
    assert stored_records(broker) == 1000
    send(broker, 100)
    assert "Traceback" not in broker.log_file.read_text()


def test_segments_are_read_as_soon_as_they_can_be_opened(broker: BrokerProcess) -> None:
    broker.restart()
    segments = len(list(broker.data_dir.glob(f"{TOPIC}-*/*.log")))
    assert segments > 3 * SPARE_FILES
    limit_files(broker, SPARE_FILES)
    with pytest.raises(AssertionError, match="gives nothing after"):
        stored_records(broker, patience_seconds=1)
    assert "Too many open files" in broker.log_file.read_text()
    limit_files(broker, None)
    assert stored_records(broker) == 1000
    send(broker, 100)
    assert stored_records(broker) == 1100
    assert "Traceback" not in broker.log_file.read_text()
