"""One query of a run: what it is, how it is doing, and how to end it between two batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millrace.pipelines import offsets
from millrace.pipelines.exactly_once import ExactlyOnce
from millrace.pipelines.gateway import jvm
from millrace.pipelines.log import LogTopic
from millrace.pipelines.modes import Choice
from millrace.pipelines.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.query import StreamingQueryProgress

LOOK_SECONDS = 0.05


@dataclass
class Query:
    """One of the queries of a run: its plan, how it runs, and, while it does, Spark's handle of it."""

    name: str
    topic: LogTopic
    frame: DataFrame
    plan: Plan
    choice: Choice
    delivery: str
    topics: list[str]
    """What it reads."""
    sink: ExactlyOnce | None = None
    restarts: int = 0
    """How often it was started again since its last batch."""
    running: StreamingQuery | None = None
    progress: StreamingQueryProgress | None = None
    reached: offsets.Offsets = field(default_factory=dict)


def failed(one: Query) -> bool:
    return one.running is not None and not one.running.isActive and one.running.exception() is not None


def process_all(one: Query, query: StreamingQuery, bootstrap: str) -> None:
    if one.choice.mode != "real-time":
        query.processAllAvailable()
        return
    # Spark's own method does not know real-time mode: wait until a batch has ended behind what is there now.
    wanted = offsets.end_offsets(bootstrap, one.topics)
    while query.isActive and (not one.reached or offsets.behind(one.reached, wanted)):
        time.sleep(LOOK_SECONDS)
    if (error := query.exception()) is not None:
        raise error


def end_after_batch(spark: SparkSession, query: StreamingQuery) -> None:
    """Let a query end when its batch is through; Spark's own `stop` would break the batch off."""
    if not query.isActive:
        return
    runtime: Any = jvm(spark).org.apache.spark.sql.execution.streaming.runtime
    terminated = getattr(getattr(runtime, "TERMINATED$"), "MODULE$")
    # Its loop looks at this between batches; nothing is interrupted.
    query._jsq.streamingQuery().state().set(terminated)
    # A batch that was about to begin has begun after this.
    time.sleep(LOOK_SECONDS)
    if not query.status["isTriggerActive"]:
        # It sleeps until the next trigger, which may be far.
        query.stop()
