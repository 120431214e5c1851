"""Tasks that are killed, frozen, repeated and run twice at once write each row once, without Spark.

`make soak` plays many runs; MILLRACE_CRASH_SEEDS sets their number.
"""

from __future__ import annotations

import json
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines import PipelineError
from millrace.pipelines.sink.exactly_once import ExactlyOnce, client_settings
from millrace.pipelines.sink.transactional_task import BatchWrite, TaskProducer
from millrace.pipelines.topics.declaration import LogTopic
from millrace.testing import Broker, BrokerProcess

from ...reading import read_topic
from ...seeds import seeds

TASK_PROCESS = Path(__file__).with_name("task_process.py")
TOPIC, QUERY = "output", "query"
PARTITIONS = 3
BATCHES = 8
ROWS = 30
KEYS = 5
WORKERS = 4
TASK_SECONDS = 0.05
FINISH_SECONDS = 60.0
TIMEOUT = {"transaction.timeout.ms": "60000"}
BROKER_PROPERTIES = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


class Worker:
    """The process of a worker, and the thread that reads its outcomes."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(TASK_PROCESS), json.dumps(client)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.idle = True
        self.alive = True
        self._requests: queue.Queue[tuple[int, int, queue.Queue[tuple[int, int, dict[str, Any]]]]] = (
            queue.Queue()
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def run(
        self, attempt: int, request: dict[str, Any], outcomes: queue.Queue[tuple[int, int, dict[str, Any]]]
    ) -> None:
        self.idle = False
        self._requests.put((attempt, request["task"], outcomes))
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.alive = False

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while True:
            attempt, task, outcomes = self._requests.get()
            line = self._process.stdout.readline()
            self.alive = bool(line)
            outcomes.put((attempt, task, json.loads(line) if line else {"lost": "the worker was killed"}))
            self.idle = self.alive
            if not line:
                return

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Run:
    """Plays batches one after the other, each until all its tasks have committed, with faults at random."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._choose = random.Random(seed)
        self._client = client_settings(broker.bootstrap, {}, TIMEOUT)
        self._workers: list[Worker] = []
        self._frozen: list[tuple[float, Worker]] = []
        self._attempt = 0
        self.expected: list[tuple[bytes, bytes]] = []

    def play(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
        try:
            for batch in range(BATCHES):
                self._play_batch(batch)
        finally:
            for worker in self._workers:
                worker.end()

    def _play_batch(self, batch: int) -> None:
        tasks = self._choose.choice((1, 2, 3))
        rows = [self._rows(batch, task) for task in range(tasks)]
        self.expected += [(key.encode(), value.encode()) for task_rows in rows for key, value in task_rows]
        crashes = self._choose.choice((0, 0, 1, 2))
        deadline = time.monotonic() + FINISH_SECONDS
        while not self._try_batch(batch, rows, crash=crashes > 0):
            crashes -= 1
            assert time.monotonic() < deadline, f"batch {batch} does not end"

    def _rows(self, batch: int, task: int) -> list[tuple[str, str]]:
        count = self._choose.choice((0, 1, ROWS, ROWS))
        # A key belongs to one task, as with rows that come from a partition of a topic.
        return [
            (f"{task}-{self._choose.randrange(KEYS)}", f"{batch:04} {task} {number:04}")
            for number in range(count)
        ]

    def _try_batch(self, batch: int, rows: list[list[tuple[str, str]]], *, crash: bool) -> bool:
        """Play one attempt of the driver; return whether it completed the batch."""
        self._attempt += 1
        sink = ExactlyOnce(QUERY, LogTopic(TOPIC, "bytes"), self._broker.bootstrap, TIMEOUT)
        sink._prepare(BatchWrite(QUERY, TOPIC, self._client, batch, len(rows), "checkpoint"))
        outcomes: queue.Queue[tuple[int, int, dict[str, Any]]] = queue.Queue()
        missing = {task for task, task_rows in enumerate(rows) if task_rows}
        for task in missing:
            for _ in range(self._choose.choice((1, 1, 2))):
                self._start(outcomes, batch, task, rows)
        crash_at = time.monotonic() + self._choose.uniform(0, 2 * TASK_SECONDS) if crash else float("inf")
        while missing:
            self._disturb()
            if time.monotonic() > crash_at:
                # The driver is gone; its tasks continue.
                return False
            try:
                attempt, task, outcome = outcomes.get(timeout=0.02)
            except queue.Empty:
                continue
            assert not outcome.get("failure"), outcome
            if attempt == self._attempt and "lost" not in outcome:
                missing.discard(task)
            elif task in missing:
                self._start(outcomes, batch, task, rows)
        return True

    def _start(
        self, outcomes: queue.Queue[Any], batch: int, task: int, rows: list[list[tuple[str, str]]]
    ) -> None:
        idle = [worker for worker in self._workers if worker.alive and worker.idle]
        if not idle:
            idle = [Worker(self._client)]
            self._workers += idle
        request = {"query": QUERY, "topic": TOPIC, "batch": batch, "tasks": len(rows), "task": task}
        seconds = self._choose.choice((0, TASK_SECONDS))
        self._choose.choice(idle).run(
            self._attempt, {**request, "rows": rows[task], "seconds": seconds}, outcomes
        )

    def _disturb(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._frozen if entry[0] < now]:
            self._frozen.remove(entry)
            entry[1].signal(signal.SIGCONT)
        alive = [worker for worker in self._workers if worker.alive]
        event = self._choose.random()
        if event < 0.005:
            self._broker.kill9()
            self._broker.start()
        elif event < 0.02 and alive:
            self._choose.choice(alive).signal(signal.SIGKILL)
        elif event < 0.06 and alive:
            victim = self._choose.choice(alive)
            victim.signal(signal.SIGSTOP)
            self._frozen.append((now + self._choose.uniform(0.05, 1.0), victim))

    def written(self) -> Iterator[tuple[bytes, bytes]]:
        for message in read_topic(self._broker.bootstrap, TOPIC):
            yield message.key() or b"", message.value() or b""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(usual=1, soak=50))
def test_each_row_is_written_once_and_in_order(seed: int, tmp_path: Path) -> None:
    with BrokerProcess(BROKER_PROPERTIES, data_dir=tmp_path) as broker:
        run = Run(broker, seed)
        run.play()
        written = list(run.written())
    assert sorted(written) == sorted(run.expected)
    for key in {key for key, _ in written}:
        values = [value for written_key, value in written if written_key == key]
        assert values == sorted(values), f"{key!r} is out of order"


def test_refused_record_is_the_reason_although_purged_records_are_reported_first() -> None:
    with Broker() as broker:
        client = client_settings(broker.bootstrap, {}, TIMEOUT)
        producer = TaskProducer(BatchWrite(QUERY, TOPIC, client, 0, 1, "checkpoint"), 0)
        try:
            for code in (KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_INFLIGHT):
                producer._delivered(KafkaError(code), Message())
            explained = producer.explained(KafkaException(KafkaError(KafkaError._PURGE_QUEUE)))
        finally:
            producer.close()
    assert isinstance(explained, PipelineError)
    assert "write smaller records" in str(explained)
