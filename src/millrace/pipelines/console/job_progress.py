"""Follows the Spark jobs of a batch and updates a progress bar with the records that they have read."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from millrace.pipelines.console.progress_bar import Extent, ProgressBar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.25

_groups = itertools.count()


@contextmanager
def followed(spark: SparkSession, label: str, whole: Extent, bar: ProgressBar) -> Iterator[None]:
    """Keep the bar up to date with the jobs that the block starts in this thread."""
    group = f"millrace-batch-{next(_groups)}"
    context = spark.sparkContext
    context.setJobGroup(group, label, interruptOnCancel=True)
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(spark, group, whole, bar, ended), daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        context._jsc.clearJobGroup()


def _watch(spark: SparkSession, group: str, whole: Extent, bar: ProgressBar, ended: threading.Event) -> None:
    while not ended.wait(POLL_SECONDS):
        # A plan may read its input twice; do not show more than the whole.
        bar.update(min(records_read(spark, group), whole.records))


def records_read(spark: SparkSession, group: str) -> int:
    """Count the records that the jobs of a group have read from their sources, including running tasks."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    tracker = context.statusTracker()
    stages: set[int] = set()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages.update(info.stageIds if info is not None else ())
    store = context._jsc.sc().statusStore()
    read = 0
    for stage in stages:
        # A stage that has not started yet is not in the store.
        with suppress(Py4JError):
            read += int(store.lastStageAttempt(stage).inputRecords())
    return read
