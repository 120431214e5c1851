"""The execution mode that is chosen for a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.pipelines import log, pipeline
from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.run.execution_mode import ExecutionMode, choose

Frames = dict[str, DataFrame]


@pipeline(clicks=log.text("clicks"), output=log.json("out"), delivery="at-least-once")
def example(clicks: DataFrame) -> DataFrame:
    return clicks


REAL_TIME: dict[str, Callable[[Frames], DataFrame]] = {
    "projection and filter": lambda f: f["clicks"].filter("user is not null").selectExpr("upper(page)"),
    "explode": lambda f: f["clicks"].selectExpr("explode(split(page, '/'))"),
    "union": lambda f: f["clicks"].union(f["views"]),
    "windowed count": lambda f: (
        f["clicks"].withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"), "user").count()
    ),
    "dropDuplicates": lambda f: f["clicks"].dropDuplicates(["user"]),
    "join with a broadcast table": lambda f: f["clicks"].join(F.broadcast(f["users"]), "user"),
}
MICRO_BATCH: dict[str, tuple[Callable[[Frames], DataFrame], str]] = {
    "python": (lambda f: f["clicks"].select(F.udf(str.upper)("page")), "Python functions"),
    "mapInArrow": (
        lambda f: f["clicks"].mapInArrow(lambda rows: rows, f["clicks"].schema),
        "Python functions",
    ),
    "join of streams": (
        lambda f: f["clicks"].join(f["views"].select("user", "at"), ["user", "at"]),
        "joins of two streams",
    ),
    "join with a table": (lambda f: f["clicks"].join(f["users"], "user"), "not marked as small"),
    "dedup within watermark": (
        lambda f: f["clicks"].withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"]),
        "deduplication within a watermark",
    ),
    "count before union": (
        lambda f: f["clicks"].groupBy("user").count().union(f["views"].groupBy("user").count()),
        "state before a union",
    ),
    "the same topic twice": (lambda f: f["clicks"].union(f["clicks"]), "read twice"),
    "sessions": (
        lambda f: (
            f["clicks"]
            .withWatermark("at", "1 minute")
            .groupBy(F.session_window("at", "1 minute"), "user")
            .count()
        ),
        "append output",
    ),
}


def chosen(frame: DataFrame, wanted: Pipeline = example, **facts: Any) -> ExecutionMode:
    return choose(wanted, frame, **{"tasks": 0, **facts})


@pytest.mark.parametrize("plan", REAL_TIME)
def test_supported_plans_run_in_real_time_mode(frames: Frames, plan: str) -> None:
    frame = REAL_TIME[plan](frames)
    # An aggregation needs slots for its shuffle; the session of the tests has two.
    choice = chosen(frame)
    assert (choice.mode, choice.output_mode) == ("real-time", "update"), choice.reason


@pytest.mark.parametrize("plan", MICRO_BATCH)
def test_unsupported_plans_run_in_micro_batches_with_the_reason(frames: Frames, plan: str) -> None:
    build, reason = MICRO_BATCH[plan]
    choice = chosen(build(frames))
    assert choice.mode == "micro-batch"
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("changes", "facts", "reason"),
    [
        ({"delivery": "exactly-once"}, {}, "exactly-once delivery commits batches"),
        ({"mode": "micro-batch"}, {}, "requests it"),
        ({"trigger": "10 seconds"}, {}, "a batch every 10 seconds"),
        ({}, {"available_now": True}, "never ends"),
        ({}, {"tasks": 3}, "--master 'local[3]' has enough"),
    ],
)
def test_options_that_require_micro_batches(
    frames: Frames, changes: dict[str, Any], facts: dict[str, Any], reason: str
) -> None:
    choice = chosen(frames["clicks"], replace(example, **changes), **facts)
    assert choice.mode == "micro-batch"
    assert reason in choice.reason


def test_only_stateless_queries_write_progress_asynchronously(frames: Frames) -> None:
    batches = replace(example, mode="micro-batch")
    assert chosen(frames["clicks"], batches).is_async
    assert not chosen(frames["clicks"].groupBy("user").count(), batches).is_async
    assert not chosen(frames["clicks"], replace(batches, delivery="exactly-once")).is_async


def test_output_mode_follows_from_the_plan_unless_given(frames: Frames) -> None:
    batches = replace(example, mode="micro-batch")
    counts = frames["clicks"].groupBy("user").count()
    assert chosen(frames["clicks"], batches).output_mode == "append"
    assert chosen(counts, batches).output_mode == "update"
    assert chosen(counts, replace(batches, output_mode="complete")).output_mode == "complete"
