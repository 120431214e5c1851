"""Chooses how a query runs: in real-time mode if plan, source and sink allow it, else in micro-batches.

The list of what Spark 4.3 accepts in real-time mode comes from experiments. If Spark refuses a plan anyway,
the run falls back to micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaException

from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import BrokerUnavailable
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.client import admin
from millrace.pipelines.spark import query_plan
from millrace.pipelines.spark.query_plan import Plan
from millrace.pipelines.spark.session import cores
from millrace.pipelines.topics.names import topic_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_SLOTS = 64
# Writes the progress of every batch while the next one runs. A restart resumes exactly.
ASYNC_OPTIONS: Mapping[str, str] = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "0",
}
# A repeated batch must have the same tasks, which adaptive execution does not guarantee.
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
class ExecutionMode:
    """The mode that a query runs in, and the reason."""

    mode: Literal["real-time", "micro-batch"]
    output_mode: str
    reason: str
    settings: Mapping[str, str] = field(default_factory=lambda: dict(STREAM_SETTINGS))
    is_async: bool = False
    slots: int = 0
    """The number of tasks that run at once, in real-time mode."""


# The mode of queries that write dead letters.
COMPANION = ExecutionMode("micro-batch", "append", "it only selects malformed records")


def choose(
    pipeline: Pipeline,
    frame: DataFrame,
    *,
    plan: Plan | None = None,
    available_now: bool = False,
    wrapped: bool = False,
    tasks: int = 1,
    slots_taken: int = 0,
) -> ExecutionMode:
    """Choose the mode of a query whose encoded rows are `frame`.

    `wrapped` means that a function wraps its batches. `tasks` is the number of partitions of its inputs.
    `slots_taken` is the number of task slots that other queries occupy.
    """
    plan = plan or Plan(frame)
    output_mode = pipeline.output_mode or _output_mode(plan)
    slots = needed_slots(frame, plan, tasks)
    obstacle = _obstacle(pipeline, plan, output_mode, available_now, wrapped)
    if obstacle is None:
        available = frame.sparkSession.sparkContext.defaultParallelism - slots_taken
        if slots <= available:
            return ExecutionMode(
                "real-time",
                "update",
                f"Spark can process each record at once, and its {slots} tasks fit {available} slots",
                slots=slots,
            )
        obstacle = (
            f"real-time mode runs all its {slots} tasks at once, and the master has {available} free slots;"
            f" --master 'local[{slots + slots_taken}]' has enough"
        )
    # Spark keeps state and progress in step, so only a stateless query may write its progress later.
    is_async = pipeline.delivery == "at-least-once" and not (wrapped or available_now) and not plan.stateful
    return ExecutionMode("micro-batch", output_mode, obstacle, is_async=is_async)


def after_refusal(execution: ExecutionMode, plan: Plan, error: str) -> ExecutionMode:
    """The mode of a query whose plan Spark has refused in real-time mode."""
    return replace(
        execution,
        mode="micro-batch",
        output_mode=_output_mode(plan),
        reason=f"Spark refuses it in real-time mode: {error}",
        settings=dict(STREAM_SETTINGS),
        is_async=not plan.stateful,
    )


def slots_for(pipelines: Iterable[Pipeline], bootstrap: str, conf: Mapping[str, str]) -> int | None:
    """Estimate the task slots to request before there is a plan, so that real-time mode is possible."""
    wanted = 0
    shuffle_partitions = int(conf.get("spark.sql.shuffle.partitions", cores()))
    for pipeline in pipelines:
        if pipeline.delivery != "at-least-once" or pipeline.mode == "micro-batch":
            continue
        streams = [topic for topic in pipeline.inputs.values() if not topic.table]
        try:
            names = [name for topic in streams for name in topic_names(topic, bootstrap)]
            found = offsets.partitions(admin(bootstrap), names)
        except (KafkaException, BrokerUnavailable):
            # The run will wait for the broker, with the default slots.
            continue
        # Most plans have a shuffle or two; for a plan with more, the reason says how many slots it needs.
        wanted += len(pipeline.outputs) * (sum(map(len, found.values())) + 2 * shuffle_partitions)
    return min(wanted, MOST_SLOTS) or None


def needed_slots(frame: DataFrame, plan: Plan, tasks: int) -> int:
    """Count the tasks of all stages of a query: real-time mode runs them all at once."""
    return tasks + len(plan.stateful) * int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _output_mode(plan: Plan) -> str:
    # Spark writes a session only when it is final.
    return "update" if plan.aggregates and not plan.has_sessions else "append"


def _obstacle(
    pipeline: Pipeline, plan: Plan, output_mode: str, available_now: bool, wrapped: bool
) -> str | None:
    """The reason why a query cannot run in real-time mode, if there is one."""
    if pipeline.mode == "micro-batch":
        return "the pipeline requests it"
    if available_now:
        return "it ends after the available records, and real-time mode never ends"
    if wrapped:
        return "its batches are observed"
    if pipeline.delivery == "exactly-once":
        return "exactly-once delivery commits batches; with at-least-once it may run in real-time mode"
    if pipeline.trigger is not None and pipeline.mode != "real-time":
        return f"it requests a batch every {pipeline.trigger}"
    if output_mode == "complete" or (output_mode == "append" and plan.aggregates):
        return f"real-time mode writes every update, and this needs {output_mode} output"
    if (operator := _unsupported(plan)) is not None:
        return f"real-time mode does not support {operator}"
    return None


def _unsupported(plan: Plan) -> str | None:
    """An operator that real-time mode does not support, in words."""
    if plan.has_python:
        return "Python functions, which are called with batches of records"
    for name, node in plan.streams():
        if name not in ALLOWED:
            return IN_WORDS.get(name, name)
        if name == "Join" and (obstacle := _join_obstacle(node)) is not None:
            return obstacle
        if name == "Union" and any(map(_keeps_state, query_plan.items(node.children()))):
            return "state before a union"
    if len(set(plan.sources)) < len(plan.sources):
        return "a topic that is read twice"
    return None


def _join_obstacle(join: query_plan.Node) -> str | None:
    tables = [child for child in query_plan.items(join.children()) if not child.isStreaming()]
    if not tables:
        return "joins of two streams"
    kinds = {query_plan.kind(node) for table in tables for node in query_plan.nodes(table)}
    if "ResolvedHint" not in kinds:
        return "joins with a table that is not marked as small; broadcast(table) marks it"
    return None


def _keeps_state(branch: query_plan.Node) -> bool:
    kinds = {"Aggregate", "Deduplicate", "Distinct"}
    return any(query_plan.kind(node) in kinds and node.isStreaming() for node in query_plan.nodes(branch))
