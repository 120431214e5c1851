"""Builds Spark's stream writer for a query: its sink, its checkpoint and its trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.pipelines.run.execution_mode import ASYNC_OPTIONS
from millrace.pipelines.run.options import WriteBatch
from millrace.pipelines.run.plan import RunPlan
from millrace.pipelines.run.query import Query
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.sink.exactly_once import ExactlyOnce

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Real-time mode reports once per batch, so the lag in the consumer group is at most this old.
REAL_TIME_BATCH = "5 seconds"


def stream_writer(plan: RunPlan, query: Query) -> DataStreamWriter:
    """The writer that starts the query; it also gives the query its exactly-once sink."""
    writer = (
        query.frame.writeStream.queryName(query.name)
        .outputMode(query.execution.output_mode)
        .option("checkpointLocation", plan.location(query.name))
    )
    if query.delivery == "exactly-once":
        query.sink = ExactlyOnce(query.name, query.topic, plan.bootstrap)
        writer = writer.foreachBatch(_wrapped(plan, query, query.sink))
    elif plan.options.around_batches is not None:
        topic = query.topic
        writer = writer.foreachBatch(
            _wrapped(plan, query, lambda frame, _: at_least_once.write_batch(frame, topic, plan.bootstrap))
        )
    else:
        writer = at_least_once.write_stream(writer, plan.bootstrap, query.topic)
        if query.execution.is_async:
            writer = writer.options(**ASYNC_OPTIONS)
    return writer.trigger(**_trigger(plan, query))


def _wrapped(plan: RunPlan, query: Query, write: WriteBatch) -> WriteBatch:
    around = plan.options.around_batches
    return write if around is None else around(query.name, write)


def _trigger(plan: RunPlan, query: Query) -> dict[str, Any]:
    if plan.options.available_now:
        return {"availableNow": True}
    if query.execution.mode == "real-time":
        return {"realTime": plan.pipeline.trigger or REAL_TIME_BATCH}
    return {"processingTime": plan.pipeline.trigger or "0 seconds"}
