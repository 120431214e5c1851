"""Reading, processing and writing is exactly-once, however often processors and broker are killed.

`MILLRACE_CRASH_SEEDS=100 pytest tests/crash/test_exactly_once.py` plays a hundred runs; so does `make soak`.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.testing import BrokerProcess
from millrace.testing.apache_kafka import TOOL_JVM_OPTIONS

from ..reading import read_topic, reader
from ..seeds import seeds
from .processor import GROUP, SINK, SOURCE, process

PROCESSOR = Path(__file__).with_name("processor.py")
PARTITIONS = 3
RECORDS = 1500
KILLS = 6
FINISH_SECONDS = 90

BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.mark.timeout(2 * FINISH_SECONDS)
@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("seed", seeds(usual=1, soak=30))
def test_every_record_is_processed_once(seed: int, processors: int, tmp_path: Path) -> None:
    def command(bootstrap: str, number: int) -> list[str]:
        return [sys.executable, str(PROCESSOR), bootstrap, str(number), str(seed)]

    with BrokerProcess(BROKER_PROPERTIES, data_dir=tmp_path) as broker:
        run = Run(broker, seed, command, processors, pause_seconds=(0.1, 1.0))
        run.play([process(value) for value in run.values])


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(2 * FINISH_SECONDS)
def test_every_record_is_copied_once_by_the_java_client(tmp_path: Path) -> None:
    """The client bumps its epoch for each transaction, and partitions join with their first batch."""
    try:
        classpath = apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    tool = "org.apache.kafka.tools.TransactionalMessageCopier"

    def command(bootstrap: str, number: int) -> list[str]:
        arguments = f"""
            --broker-list {bootstrap} --input-topic {SOURCE} --input-partition {number} --output-topic {SINK}
            --consumer-group {GROUP} --transactional-id copier-{number} --transaction-size 5
            --transaction-timeout 10000 --enable-random-aborts --use-group-metadata
        """
        return [str(java()), *TOOL_JVM_OPTIONS, "-cp", classpath, tool, *arguments.split()]

    with BrokerProcess(BROKER_PROPERTIES, data_dir=tmp_path) as broker:
        run = Run(broker, 1, command, PARTITIONS, pause_seconds=(1.0, 2.5))
        run.play(run.values)


class Run:
    """Records in the source, processors at work, frequent kills of processors or broker, and the check."""

    def __init__(
        self,
        broker: BrokerProcess,
        seed: int,
        command: Callable[[str, int], Sequence[str]],
        processors: int,
        *,
        pause_seconds: tuple[float, float],
    ) -> None:
        self.values = [b"%d" % number for number in range(RECORDS)]
        self._broker = broker
        self._choose = random.Random(seed)
        self._command = command
        self._processors: list[subprocess.Popen[bytes] | None] = [None] * processors
        self._pause_seconds = pause_seconds

    def play(self, expected: list[bytes]) -> None:
        try:
            self._fill()
            for _ in range(KILLS):
                self._watch_over(self._choose.uniform(*self._pause_seconds))
                self._kill_one()
            self._finish(len(expected))
            self._check(expected)
        except BaseException:
            print(self._broker.log_file.read_text()[-20_000:])
            raise
        finally:
            self._stop()

    def _fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        created = admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (SOURCE, SINK)])
        for topic in created.values():
            topic.result(FINISH_SECONDS)
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        for number, value in enumerate(self.values):
            producer.produce(SOURCE, value, partition=number % PARTITIONS)
        assert producer.flush(FINISH_SECONDS) == 0

    # Killing

    def _watch_over(self, seconds: float) -> None:
        """Restart the processors that have ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for number, processor in enumerate(self._processors):
                if processor is None or processor.poll() is not None:
                    command = self._command(self._broker.bootstrap, number)
                    self._processors[number] = subprocess.Popen(
                        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
            time.sleep(0.02)

    def _kill_one(self) -> None:
        if self._choose.random() < 0.5:
            self._broker.kill9()
            self._broker.start()
            return
        victim = self._choose.choice(self._processors)
        assert victim is not None
        victim.kill()
        victim.wait()

    def _stop(self) -> None:
        for processor in self._processors:
            if processor is not None:
                processor.kill()
                processor.wait()

    # Checking

    def _finish(self, count: int) -> None:
        deadline = time.monotonic() + FINISH_SECONDS
        while (seen := len(list(self._committed()))) < count:
            assert time.monotonic() < deadline, f"only {seen} of {count} records were processed"
            self._watch_over(0.5)

    def _check(self, expected: list[bytes]) -> None:
        assert sorted(self._committed()) == sorted(expected)
        offsets = reader(self._broker.bootstrap, group=GROUP).committed(
            [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)], FINISH_SECONDS
        )
        assert [each.offset for each in offsets] == [RECORDS // PARTITIONS] * PARTITIONS

    def _committed(self) -> Iterator[bytes]:
        return (message.value() or b"" for message in read_topic(self._broker.bootstrap, SINK))
