"""How a query runs: in real-time mode where plan, source and sink allow it, else in micro-batches; and why.

What Spark 4.3 accepts in real-time mode was found by trying; if it refuses all the same, the run falls back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaException

from millrace.pipelines import offsets, plans, reading
from millrace.pipelines.pipeline import Pipeline
from millrace.pipelines.session import cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_SLOTS = 64
# Writes how far a query is while the next batch runs; for every batch, so that a stop resumes exactly.
ASYNC_OPTIONS: Mapping[str, str] = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "0",
}
# Tasks of a batch that is run again must be the same ones, which adaptive execution does not promise.
STREAM_SETTINGS: Mapping[str, str] = {"spark.sql.adaptive.enabled": "false"}
REAL_TIME_SETTINGS: Mapping[str, str] = {
    # Real-time mode wants state that a batch which failed half-way cannot spoil.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}

ALLOWED = {
    "Aggregate",
    "CollectMetrics",
    "Deduplicate",
    "Expand",
    "Filter",
    "Generate",
    "Join",
    "Project",
    "ResolvedHint",
    "StreamingRelationV2",
    "SubqueryAlias",
    "Union",
    "View",
}
IN_WORDS = {
    "EventTimeWatermark": "a watermark",
    "DeduplicateWithinWatermark": "deduplication within a watermark",
    "Distinct": "distinct()",
    "GlobalLimit": "a limit",
    "Repartition": "a repartitioning",
    "RepartitionByExpression": "a repartitioning",
    "RebalancePartitions": "a repartitioning",
    "Sort": "sorting",
    "Window": "a window function",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithStateInPySpark": "transformWithState in Python",
    "MapInArrow": "a Python function (mapInArrow)",
    "MapInPandas": "a Python function (mapInPandas)",
    "FlatMapGroupsInPandas": "a Python function (applyInPandas)",
    "FlatMapGroupsInArrow": "a Python function (applyInArrow)",
}


@dataclass(frozen=True)
class Choice:
    """How a query runs, and why."""

    mode: Literal["real-time", "micro-batch"]
    output_mode: str
    why: str
    settings: Mapping[str, str] = field(default_factory=lambda: dict(STREAM_SETTINGS))
    is_async: bool = False
    slots: int = 0
    """How many tasks run at once, in real-time mode."""


COMPANION = Choice("micro-batch", "append", "it only picks out malformed records")


def choose(
    pipeline: Pipeline,
    frame: DataFrame,
    *,
    available_now: bool = False,
    wrapped: bool = False,
    tasks: int = 1,
) -> Choice:
    """How to run a query whose encoded rows are `frame`.

    `wrapped` says that something looks at its batches, `tasks` is how many partitions its inputs have.
    """
    output_mode = pipeline.output_mode or ("update" if plans.aggregates(frame) else "append")
    slots = needed_slots(frame, tasks)
    if (obstacle := _obstacle(pipeline, frame, output_mode, available_now, wrapped, slots)) is None:
        return Choice(
            "real-time",
            "update",
            f"every operator of it can work record by record, and {slots} tasks fit into this master's slots",
            {**STREAM_SETTINGS, **REAL_TIME_SETTINGS},
            slots=slots,
        )
    is_async = (
        pipeline.delivery == "at-least-once"
        and not wrapped
        and not available_now
        and not plans.stateful(frame)
    )
    return Choice("micro-batch", output_mode, obstacle, is_async=is_async)


def refused(choice: Choice, error: BaseException) -> Choice:
    """The choice that is left when Spark has refused real-time mode."""
    first = str(error).split("\n", 1)[0]
    return replace(
        choice,
        mode="micro-batch",
        why=f"Spark refuses this plan in real-time mode ({first[:300]})",
        settings=dict(STREAM_SETTINGS),
    )


def slots_for(pipelines: Iterable[Pipeline], bootstrap: str, conf: Mapping[str, str]) -> int | None:
    """How many task slots to ask for before there is a plan, so that real-time mode is not out of reach."""
    wanted = 0
    shuffled = int(conf.get("spark.sql.shuffle.partitions", cores()))
    for pipeline in pipelines:
        if pipeline.delivery != "at-least-once" or pipeline.mode == "micro-batch":
            continue
        streams = [topic for topic in pipeline.inputs.values() if not topic.table]
        names = [name for topic in streams for name in reading.topics(topic, bootstrap)]
        try:
            found = offsets.partitions(offsets.admin(bootstrap), names)
        except KafkaException:
            # The broker is away; the run will wait for it, with the slots that there are.
            continue
        # A shuffle or two are common; a plan that has more is told how many slots it needs.
        wanted += len(pipeline.outputs) * (sum(map(len, found.values())) + 2 * shuffled)
    return min(wanted, MOST_SLOTS) or None


def needed_slots(frame: DataFrame, tasks: int) -> int:
    """How many tasks a query has in all its stages, which real-time mode runs at once."""
    shuffles = len(plans.stateful(frame))
    return tasks + shuffles * int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _obstacle(
    pipeline: Pipeline, frame: DataFrame, output_mode: str, available_now: bool, wrapped: bool, slots: int
) -> str | None:
    """What keeps a query from real-time mode, if anything does."""
    if pipeline.mode == "micro-batch":
        return "the pipeline asks for it"
    if available_now:
        return "it ends when all that is there is done, and real-time mode never ends"
    if wrapped:
        return "its batches are looked at"
    if pipeline.delivery == "exactly-once":
        return "exactly-once delivery needs batches to commit; at-least-once could run in real-time mode"
    if pipeline.trigger is not None and pipeline.mode != "real-time":
        return f"it asks for a batch every {pipeline.trigger}"
    if output_mode == "complete" or (output_mode == "append" and plans.aggregates(frame)):
        return f"real-time mode writes updates, and the pipeline asks for {output_mode} output"
    if (operator := _foreign(frame)) is not None:
        return f"real-time mode does not know {operator}"
    available = frame.sparkSession.sparkContext.defaultParallelism
    if slots > available:
        return (
            f"real-time mode runs all {slots} tasks of it at once, and the master has {available} slots;"
            f" --master 'local[{slots}]' would do"
        )
    return None


def _foreign(frame: DataFrame) -> str | None:
    """An operator that real-time mode does not know, in words."""
    before_union = 0
    for node in plans.nodes(plans.analyzed(frame)):
        name = plans.kind(node)
        if not node.isStreaming():
            continue
        if name not in ALLOWED:
            return IN_WORDS.get(name, name)
        if name == "Join" and all(child.isStreaming() for child in plans.items(node.children())):
            return "joins of two streams"
        if name == "Union":
            before_union += sum(_keeps_state(child) for child in plans.items(node.children()))
    if before_union:
        return "state before a union"
    if plans.has_python(frame):
        return "Python functions (they are called with batches of records)"
    return None


def _keeps_state(plan: plans.Node) -> bool:
    return any(
        plans.kind(one) in {"Aggregate", "Deduplicate"} and one.isStreaming() for one in plans.nodes(plan)
    )
