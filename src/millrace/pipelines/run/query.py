"""One query of a run: its plan, its progress, and how to end it between two batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millrace.pipelines.kafka import offsets
from millrace.pipelines.run.execution_mode import ExecutionMode
from millrace.pipelines.sink.exactly_once import ExactlyOnce
from millrace.pipelines.spark.gateway import jvm
from millrace.pipelines.spark.query_plan import Plan
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.query import StreamingQueryProgress

POLL_SECONDS = 0.05


@dataclass
class Query:
    """One query of a run; `handle` is Spark's, while the query is started."""

    name: str
    topic: LogTopic
    frame: DataFrame
    plan: Plan
    execution: ExecutionMode
    delivery: str
    topics: list[str]
    """The topics that it reads."""
    sink: ExactlyOnce | None = None
    restarts: int = 0
    """The number of restarts since its last batch."""
    handle: StreamingQuery | None = None
    progress: StreamingQueryProgress | None = None
    reached: offsets.Offsets = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        return self.handle is not None and self.handle.isActive

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the query, if one did."""
        return None if self.handle is None or self.handle.isActive else self.handle.exception()


def process_all(query: Query, handle: StreamingQuery, bootstrap: str) -> None:
    """Wait until the query has processed everything that its inputs hold now."""
    if query.execution.mode != "real-time":
        handle.processAllAvailable()
        return
    # Spark's method does not support real-time mode: wait until a batch ends behind the current ends.
    wanted = offsets.end_offsets(bootstrap, query.topics)
    while handle.isActive and (not query.reached or offsets.behind(query.reached, wanted)):
        time.sleep(POLL_SECONDS)
    if (error := handle.exception()) is not None:
        raise error


def end_after_batch(spark: SparkSession, handle: StreamingQuery) -> None:
    """End a query when its batch is complete. Spark's own `stop` would abort the batch."""
    if not handle.isActive:
        return
    runtime: Any = jvm(spark).org.apache.spark.sql.execution.streaming.runtime
    terminated = getattr(getattr(runtime, "TERMINATED$"), "MODULE$")
    # The loop of the query checks this between batches; nothing is interrupted.
    handle._jsq.streamingQuery().state().set(terminated)
    # A batch that was about to start has started after this pause.
    time.sleep(POLL_SECONDS)
    if not handle.status["isTriggerActive"]:
        # It sleeps until its next trigger, which may be far away.
        handle.stop()
