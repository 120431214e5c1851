"""Pipelines of millrace on its own log and stock PySpark on Apache Kafka: the same jobs in one run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks.brokers import BROKERS
from benchmarks.figures import Figures
from benchmarks.pipelines import jobs
from benchmarks.workloads import Bar, at_least, at_most
from millrace.pipelines.decorator import Mode

Announce = Callable[[str], None]

WARM_UP, SAMPLES = 20, 30
# With Spark's default of 200 shuffle partitions a batch takes a minute on two cores.
SLOW_WARM_UP, SLOW_SAMPLES = 1, 2
BACKLOG_RECORDS = 1_000_000
BACKLOG_PARTITIONS = 4

# Job, millrace's mode, title, bar. Stock PySpark runs micro-batches only.
LATENCIES: tuple[tuple[str, Mode, str, Bar], ...] = (
    (jobs.STATELESS, "micro-batch", "latency, native projection", at_most(0.3)),
    (jobs.PYTHON, "micro-batch", "latency, Python function", at_most(0.35)),
    (jobs.AGGREGATION, "micro-batch", "latency, aggregation", at_most(0.55)),
    (jobs.STATELESS, "real-time", "latency, native projection in real-time mode", at_most(0.02)),
)


class Side:
    """A process with a Spark session, and its broker."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self._process = process
        self._bootstrap = bootstrap
        self._answer()

    def measure(self, measure: str, **request: Any) -> list[float]:
        assert self._process.stdin is not None
        asked = {"measure": measure, "bootstrap": self._bootstrap, **request}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        figures: list[float] = json.loads(self._answer())
        return figures

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a side of the comparison has died; see above")
        return line


def run(announce: Announce, *, rounds: int, quick: bool = False) -> Figures:
    """Latencies and throughput of both sides, in alternating rounds."""
    figures = Figures()
    records = BACKLOG_RECORDS // 10 if quick else BACKLOG_RECORDS
    for number in range(rounds):
        for name in BROKERS:
            announce(f"{name}: starting the broker and Spark")
            with side(name) as started:
                for job, mode, title, bar in LATENCIES:
                    announce(f"{name}: {title}, round {number + 1} of {rounds}")
                    slow = job == jobs.AGGREGATION
                    samples = SLOW_SAMPLES if slow else SAMPLES
                    taken = started.measure(
                        "latency",
                        job=job,
                        mode=mode,
                        topics=f"{job}-{mode}",
                        warm_up=SLOW_WARM_UP if slow else WARM_UP,
                        samples=max(3, samples // 5) if quick else samples,
                    )
                    figures.add(title, "p50 ms", name, median(taken), bar)
                announce(f"{name}: backlog, round {number + 1} of {rounds}")
                rates = started.measure(
                    "backlog", topics="backlog", records=records, partitions=BACKLOG_PARTITIONS, runs=2
                )
                figures.add("backlog of 100 B records", "records/s", name, median(rates), at_least(1.0))
    return figures


@contextmanager
def side(name: str, *arguments: str) -> Iterator[Side]:
    """Start one side on a broker of its own."""
    command = [sys.executable, "-m", "benchmarks.pipelines.side", name, *arguments]
    with (
        BROKERS[name]({}) as broker,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            yield Side(process, broker.bootstrap)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
