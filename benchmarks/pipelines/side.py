"""One side of the comparison, in a process of its own: its Spark session, its queries, its figures.

python -m benchmarks.pipelines.side millrace '{"bootstrap": "...", ...}'
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.pipelines import closed_loop, jobs
from benchmarks.pipelines.sink import fill
from millrace import jars
from millrace.pipelines import Run, RunOptions, session
from millrace.pipelines.decorator import Mode

MASTER = "local[2]"
# Real-time mode runs every task of a query at once.
SLOTS = 8


class Stock:
    """PySpark with its default settings and the connector's jars; only progress bars are off."""

    def __init__(self, master: str = MASTER) -> None:
        from pyspark.sql import SparkSession

        # As in an activated virtual environment; otherwise workers run another `python3`.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master(master).config("spark.ui.showConsoleProgress", False)
        found = ",".join(map(str, jars.spark_kafka_jars()))
        self.spark = builder.config("spark.jars", found).getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    @contextmanager
    def running(self, job: str, bootstrap: str, source: str, target: str, mode: Mode) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as checkpoint:
            query = jobs.by_hand(self.spark, bootstrap, job, source, target, checkpoint).start()
            yield
            query.stop()

    def backlog(self, bootstrap: str, source: str, target: str) -> float:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = jobs.by_hand(self.spark, bootstrap, jobs.STATELESS, source, target, checkpoint)
            began = time.perf_counter()
            writer.trigger(availableNow=True).start().awaitTermination()
            return time.perf_counter() - began


class Millrace:
    """The same jobs as pipelines."""

    def __init__(self, master: str | None = None) -> None:
        self.spark = session("benchmark", master=master, slots=None if master else SLOTS)

    @contextmanager
    def running(self, job: str, bootstrap: str, source: str, target: str, mode: Mode) -> Iterator[None]:
        declared = jobs.declared(job, source, target, mode=mode)
        with tempfile.TemporaryDirectory() as checkpoints:
            run = Run(declared, self.spark, bootstrap, RunOptions(checkpoints=checkpoints))
            run.start()
            chosen = run.planned[0].execution
            if mode not in ("auto", chosen.mode):
                raise RuntimeError(f"asked for {mode}, got {chosen.mode}: {chosen.reason}")
            yield
            run.stop(now=True)

    def backlog(self, bootstrap: str, source: str, target: str) -> float:
        declared = jobs.declared(jobs.STATELESS, source, target, mode="micro-batch")
        with tempfile.TemporaryDirectory() as checkpoints:
            options = RunOptions(checkpoints=checkpoints, available_now=True)
            run = Run(declared, self.spark, bootstrap, options)
            began = time.perf_counter()
            run.start()
            run.wait()
            return time.perf_counter() - began


SIDES: dict[str, Any] = {"millrace": Millrace, "Apache Kafka": Stock}


def latency(
    side: Any, *, bootstrap: str, job: str, mode: Mode, topics: str, warm_up: int, samples: int
) -> list[float]:
    source, target = f"{topics}-in", f"{topics}-out"
    closed_loop.create(bootstrap, source, target)
    with side.running(job, bootstrap, source, target, mode):
        return closed_loop.milliseconds(bootstrap, source, target, warm_up=warm_up, samples=samples)


def backlog(
    side: Any, *, bootstrap: str, topics: str, records: int, partitions: int, runs: int
) -> list[float]:
    """Records per second through a filled topic; the first run is warm-up."""
    source, target = f"{topics}-in", f"{topics}-out"
    closed_loop.create(bootstrap, source, target, partitions=partitions)
    fill(bootstrap, records, topic=source)
    return [records / side.backlog(bootstrap, source, target) for _ in range(runs + 1)][1:]


MEASURES: dict[str, Any] = {"latency": latency, "backlog": backlog}


def main() -> None:
    """Run the measurements from standard input, one JSON object per line, and print the figures of each."""
    side = SIDES[sys.argv[1]](*sys.argv[2:])
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        figures = MEASURES[request.pop("measure")](side, **request)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
