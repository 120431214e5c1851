"""How a query runs: in real-time mode where plan, source and sink allow it, else in micro-batches; and why.

What Spark 4.3 accepts in real-time mode was found by trying; if it refuses all the same, the run falls back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaException

from millrace.pipelines import offsets, plans, reading
from millrace.pipelines.errors import BrokerAway
from millrace.pipelines.pipeline import Pipeline
from millrace.pipelines.plans import Plan
from millrace.pipelines.spark_session import cores

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

ALLOWED = {
    "Aggregate",
    "CollectMetrics",
    "Deduplicate",
    "Distinct",
    "EventTimeWatermark",
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
    "DeduplicateWithinWatermark": "deduplication within a watermark",
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
    plan: Plan | None = None,
    available_now: bool = False,
    wrapped: bool = False,
    tasks: int = 1,
    taken: int = 0,
) -> Choice:
    """How to run a query whose encoded rows are `frame`.

    `wrapped` says that something looks at its batches, `tasks` is how many partitions its inputs have,
    `taken` how many task slots other queries need all the time.
    """
    plan = plan or Plan(frame)
    output_mode = pipeline.output_mode or _output_mode(plan)
    slots = needed_slots(frame, plan, tasks)
    obstacle = _obstacle(pipeline, plan, output_mode, available_now, wrapped)
    if obstacle is None:
        available = frame.sparkSession.sparkContext.defaultParallelism - taken
        if slots <= available:
            return Choice(
                "real-time",
                "update",
                f"Spark can pass on each record at once here, and its {slots} tasks fit {available} slots",
                slots=slots,
            )
        obstacle = (
            f"real-time mode runs all {slots} tasks of it at once, and the master has {available} free slots;"
            f" --master 'local[{slots + taken}]' would do"
        )
    # Spark keeps state and progress in step, so only a query without state may write its progress later.
    is_async = pipeline.delivery == "at-least-once" and not (wrapped or available_now) and not plan.stateful
    return Choice("micro-batch", output_mode, obstacle, is_async=is_async)


def refused(choice: Choice, plan: Plan, error: str) -> Choice:
    """The choice that is left when Spark has refused real-time mode."""
    return replace(
        choice,
        mode="micro-batch",
        output_mode=_output_mode(plan),
        why=f"Spark refuses it in real-time mode: {error}",
        settings=dict(STREAM_SETTINGS),
        is_async=not plan.stateful,
    )


def slots_for(pipelines: Iterable[Pipeline], bootstrap: str, conf: Mapping[str, str]) -> int | None:
    """How many task slots to ask for before there is a plan, so that real-time mode is not out of reach."""
    wanted = 0
    shuffled = int(conf.get("spark.sql.shuffle.partitions", cores()))
    for pipeline in pipelines:
        if pipeline.delivery != "at-least-once" or pipeline.mode == "micro-batch":
            continue
        streams = [topic for topic in pipeline.inputs.values() if not topic.table]
        try:
            names = [name for topic in streams for name in reading.topics(topic, bootstrap)]
            found = offsets.partitions(offsets.admin(bootstrap), names)
        except (KafkaException, BrokerAway):
            # The run will wait for the broker, with the slots that there are.
            continue
        # A shuffle or two are common; a plan that has more is told how many slots it needs.
        wanted += len(pipeline.outputs) * (sum(map(len, found.values())) + 2 * shuffled)
    return min(wanted, MOST_SLOTS) or None


def needed_slots(frame: DataFrame, plan: Plan, tasks: int) -> int:
    """How many tasks a query has in all its stages, which real-time mode runs at once."""
    return tasks + len(plan.stateful) * int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _output_mode(plan: Plan) -> str:
    # Spark writes a session once it is final, whatever else it does.
    return "update" if plan.aggregates and not plan.has_sessions else "append"


def _obstacle(
    pipeline: Pipeline, plan: Plan, output_mode: str, available_now: bool, wrapped: bool
) -> str | None:
    """What keeps a query from real-time mode, if anything does."""
    if pipeline.mode == "micro-batch":
        return "the pipeline asks for it"
    if available_now:
        return "it ends when all that is there is done, and real-time mode never ends"
    if wrapped:
        return "its batches are looked at"
    if pipeline.delivery == "exactly-once":
        return "exactly-once delivery commits batches; with at-least-once it may run in real-time mode"
    if pipeline.trigger is not None and pipeline.mode != "real-time":
        return f"it asks for a batch every {pipeline.trigger}"
    if output_mode == "complete" or (output_mode == "append" and plan.aggregates):
        return f"real-time mode writes every update, and this needs {output_mode} output"
    if (operator := _foreign(plan)) is not None:
        return f"real-time mode does not know {operator}"
    return None


def _foreign(plan: Plan) -> str | None:
    """Something that real-time mode does not know, in words."""
    if plan.has_python:
        return "Python functions, which are called with batches of records"
    for name, node in plan.streams():
        if name not in ALLOWED:
            return IN_WORDS.get(name, name)
        if name == "Join" and (obstacle := _join_obstacle(node)) is not None:
            return obstacle
        if name == "Union" and any(map(_keeps_state, plans.items(node.children()))):
            return "state before a union"
    if len(set(plan.sources)) < len(plan.sources):
        return "a topic that is read twice"
    return None


def _join_obstacle(join: plans.Node) -> str | None:
    tables = [child for child in plans.items(join.children()) if not child.isStreaming()]
    if not tables:
        return "joins of two streams"
    if not any(plans.kind(node) == "ResolvedHint" for table in tables for node in plans.nodes(table)):
        return "joins with a table that is not small enough to send everywhere; broadcast(table) says it is"
    return None


def _keeps_state(branch: plans.Node) -> bool:
    kinds = {"Aggregate", "Deduplicate", "Distinct"}
    return any(plans.kind(one) in kinds and one.isStreaming() for one in plans.nodes(branch))
