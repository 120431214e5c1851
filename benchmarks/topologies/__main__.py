"""Words per second, latency and memory of a word count that writes every update, in one table.

python -m benchmarks.topologies [--sentences N] [--workers N]

The topology runs as plain processes with each guarantee, and on Spark; PySpark counts by hand, with state in
Python. All of them read the same sentences from the same millrace broker, one after the other.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import BROKERS
from benchmarks.machine.usage import cpu_seconds, resident_bytes
from benchmarks.topologies import by_hand
from millrace.topologies.running import prepare
from millrace.topologies.runtime.processes import Processes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "topologies" / "wordcount.py"
SOURCE = "sentences"
PARTITIONS = 4
WORDS = 8
VOCABULARY = 10_000
LATENCY_SAMPLES = 100
POLL_SECONDS = 0.02
LIMIT_SECONDS = 600.0

Row = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topologies", description=__doc__)
    parser.add_argument("--sentences", type=int, default=100_000, help="sentences of eight words each")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    table = Table("", "words/s", "CPU s per million words", "MB per worker", "p50 ms", "p99 ms")
    for name, row in measured(arguments.sentences, arguments.workers):
        table.add_row(
            name,
            *(f"{row[key]:,.{digits}f}" if key in row else "" for key, digits in COLUMNS),
        )
    Console().print(table)


COLUMNS = (("words", 0), ("cpu", 1), ("memory", 0), ("p50", 1), ("p99", 1))


def measured(sentences: int, workers: int) -> Iterator[tuple[str, Row]]:
    with BROKERS["millrace"]({"num.partitions": str(PARTITIONS)}) as broker:
        bootstrap = broker.bootstrap
        _fill(bootstrap, sentences)
        total = sentences * WORDS
        for guarantee in ("none", "at-least-once", "exactly-once"):
            _announce(f"topology, {guarantee}")
            yield f"topology, {guarantee}", _topology(bootstrap, guarantee, workers, total)
        _announce("topology on Spark")
        yield "topology, exactly-once, on Spark", _topology_on_spark(bootstrap, workers, total)
        _announce("PySpark by hand")
        yield "PySpark by hand, state in Python", _by_hand(bootstrap, workers, total)


def _announce(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _fill(bootstrap: str, sentences: int) -> None:
    """Sentences of random words, some much more frequent than others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(SOURCE, PARTITIONS)]).values():
        created.result(30)
    chance = random.Random(1)
    words = [f"word{int(VOCABULARY * chance.random() ** 3)}" for _ in range(100_000)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(sentences):
        start = (number * WORDS) % (len(words) - WORDS)
        producer.produce(SOURCE, " ".join(words[start : start + WORDS]))
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


@contextmanager
def _topology_file(guarantee: str, source: str, target: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "wordcount.py"
        text = EXAMPLE.read_text().replace('"exactly-once"', f'"{guarantee}"')
        path.write_text(text.replace('"sentences"', f'"{source}"').replace('"counts"', f'"{target}"'))
        yield path


def _topology(bootstrap: str, guarantee: str, workers: int, total: int) -> Row:
    target = f"counts-{guarantee}"
    with _topology_file(guarantee, SOURCE, target) as path:
        processes = Processes(prepare(path, bootstrap, workers=workers, name=f"bench-{guarantee}"))
        with _running(processes):
            row = _flow(bootstrap, target, total, lambda: [w.pid for w in processes.workers if w.pid])
    row["memory"] /= workers
    return row | _latency(bootstrap, guarantee, workers)


@contextmanager
def _running(processes: Processes) -> Iterator[None]:
    thread = threading.Thread(target=processes.run)
    thread.start()
    try:
        yield
    finally:
        processes.interrupt()
        thread.join()


def _latency(bootstrap: str, guarantee: str, workers: int) -> Row:
    """From one sentence to the last of its counts, while nothing else happens."""
    source, target = f"single-{guarantee}", f"single-counts-{guarantee}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(source, PARTITIONS), NewTopic(target, PARTITIONS)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(target, index, 0) for index in range(PARTITIONS)])
    samples: list[float] = []
    with _topology_file(guarantee, source, target) as path:
        processes = Processes(prepare(path, bootstrap, workers=workers, name=f"single-{guarantee}"))
        with _running(processes):
            for number in range(LATENCY_SAMPLES + 10):
                began = time.perf_counter()
                producer.produce(source, " ".join(f"w{number}-{word}" for word in range(WORDS)))
                producer.flush()
                seen = 0
                while seen < WORDS:
                    message = consumer.poll(LIMIT_SECONDS)
                    seen += message is not None and message.error() is None
                samples.append((time.perf_counter() - began) * 1000)
    consumer.close()
    # The first ones wait for the workers' start.
    ordered = sorted(samples[10:])
    return {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)]}


def _topology_on_spark(bootstrap: str, workers: int, total: int) -> Row:
    target = "counts-spark"
    with _topology_file("exactly-once", SOURCE, target) as path:
        command = ["topology", "run", str(path), "--bootstrap-server", bootstrap, "--name", "bench-spark"]
        driver = subprocess.Popen([sys.executable, "-m", "millrace", *command, "--workers", str(workers)])
        try:
            row = _flow(bootstrap, target, total, lambda: [driver.pid])
        finally:
            driver.terminate()
            driver.wait()
    del row["memory"]
    return row


def _by_hand(bootstrap: str, workers: int, total: int) -> Row:
    target = "counts-by-hand"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(target, PARTITIONS)]).values():
        created.result(30)
    command = [sys.executable, by_hand.__file__, bootstrap, SOURCE, target, str(workers)]
    driver = subprocess.Popen(command)
    try:
        row = _flow(bootstrap, target, total, lambda: [driver.pid])
    finally:
        driver.terminate()
        driver.wait()
    del row["memory"]
    return row


def _flow(bootstrap: str, target: str, total: int, pids: Callable[[], list[int]]) -> Row:
    """The rate from the first output to the last, and what the processes used meanwhile."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watching"})
    first_seen, first_at, first_cpu, memory = 0, 0.0, 0.0, 0
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        while time.monotonic() < deadline:
            written = _written(consumer, target)
            now = time.perf_counter()
            if written and not first_seen:
                first_seen, first_at, first_cpu = written, now, sum(map(_cpu, pids()))
            if first_seen:
                memory = max(memory, sum(map(_memory, pids())))
            if written >= total:
                words = written - first_seen
                cpu = sum(map(_cpu, pids())) - first_cpu
                return {
                    "words": words / (now - first_at),
                    "cpu": cpu / words * 1e6,
                    "memory": memory / 1e6,
                }
            time.sleep(POLL_SECONDS)
    finally:
        consumer.close()
    raise RuntimeError(f"{target} has not got all words within {LIMIT_SECONDS:g} s")


def _written(consumer: Consumer, topic: str) -> int:
    """The outputs so far; markers of transactions, a few per commit, count as well."""
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
        for index in range(PARTITIONS)
        if topic in consumer.list_topics(timeout=30).topics
    ]
    return sum(max(end, 0) for end in ends)


def _cpu(pid: int) -> float:
    try:
        return cpu_seconds(pid)
    except psutil.NoSuchProcess:
        return 0.0


def _memory(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except psutil.NoSuchProcess:
        return 0


if __name__ == "__main__":
    main()
