"""Throughput of a pipeline by partitions of its topic, and by executor processes."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from benchmarks.pipelines.comparison import side
from millrace.testing.standalone_spark import StandaloneSpark

PARTITIONS = (1, 4, 16)
EXECUTORS = (1, 2, 4)
RECORDS = 1_000_000
RUNS = 3

Columns = dict[str, dict[str, float]]


def run(announce: Callable[[str], None], *, quick: bool = False) -> Columns:
    """Records per second of a native projection over a backlog."""
    records = RECORDS // 10 if quick else RECORDS
    columns: Columns = {}
    with side("millrace") as local:
        for count in PARTITIONS:
            announce(f"{count} partitions")
            rates = local.measure(
                "backlog", topics=f"partitions-{count}", records=records, partitions=count, runs=RUNS
            )
            columns[_plural(count, "partition")] = {"records/s": median(rates)}
    for count in EXECUTORS:
        announce(f"{count} executor processes")
        with StandaloneSpark(workers=count) as cluster, side("millrace", cluster.master) as distributed:
            rates = distributed.measure(
                "backlog", topics=f"executors-{count}", records=records, partitions=4, runs=RUNS
            )
            columns[_plural(count, "executor")] = {"records/s": median(rates)}
    return columns


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"
