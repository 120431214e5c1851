"""Which mode is chosen for which plan, and what a plan keeps as state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.pipelines import log, pipeline
from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.run.execution_mode import ExecutionMode, choose
from millrace.pipelines.spark.query_plan import Plan

from .topics import create

Frames = dict[str, DataFrame]


@pytest.fixture(scope="module")
def frames(spark: SparkSession, broker: Any) -> Frames:
    """A topic as a stream, another one, and a small table."""
    for topic in ("clicks", "views"):
        create(broker.bootstrap, topic)
    options = {"kafka.bootstrap.servers": broker.bootstrap}

    def stream(topic: str) -> DataFrame:
        source = spark.readStream.format("kafka").options(**options, subscribe=topic).load()
        return source.selectExpr(
            "cast(key as string) as user", "cast(value as string) as page", "timestamp as at"
        )

    users = spark.createDataFrame([("anna", 1)], "user string, level int")
    return {"clicks": stream("clicks"), "views": stream("views"), "users": users}


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
def test_what_works_record_by_record_runs_in_real_time_mode(frames: Frames, plan: str) -> None:
    frame = REAL_TIME[plan](frames)
    # Counting needs slots for its shuffle, of which the tests' session has two.
    choice = chosen(frame)
    assert (choice.mode, choice.output_mode) == ("real-time", "update"), choice.reason


@pytest.mark.parametrize("plan", MICRO_BATCH)
def test_what_does_not_runs_in_micro_batches_and_says_why(frames: Frames, plan: str) -> None:
    build, why = MICRO_BATCH[plan]
    choice = chosen(build(frames))
    assert choice.mode == "micro-batch"
    assert why in choice.reason


@pytest.mark.parametrize(
    ("changes", "facts", "why"),
    [
        ({"delivery": "exactly-once"}, {}, "exactly-once delivery commits batches"),
        ({"mode": "micro-batch"}, {}, "requests it"),
        ({"trigger": "10 seconds"}, {}, "a batch every 10 seconds"),
        ({}, {"available_now": True}, "never ends"),
        ({}, {"tasks": 3}, "--master 'local\\[3\\]' has enough"),
    ],
)
def test_what_else_keeps_a_query_in_micro_batches(
    frames: Frames, changes: dict[str, Any], facts: dict[str, Any], why: str
) -> None:
    choice = chosen(frames["clicks"], replace(example, **changes), **facts)
    assert choice.mode == "micro-batch"
    assert why.replace("\\", "") in choice.reason


def test_only_stateless_queries_write_their_progress_later(frames: Frames) -> None:
    batches = replace(example, mode="micro-batch")
    assert chosen(frames["clicks"], batches).is_async
    assert not chosen(frames["clicks"].groupBy("user").count(), batches).is_async
    assert not chosen(frames["clicks"], replace(batches, delivery="exactly-once")).is_async


def test_the_output_mode_follows_from_the_plan_unless_given(frames: Frames) -> None:
    batches = replace(example, mode="micro-batch")
    counts = frames["clicks"].groupBy("user").count()
    assert chosen(frames["clicks"], batches).output_mode == "append"
    assert chosen(counts, batches).output_mode == "update"
    assert chosen(counts, replace(batches, output_mode="complete")).output_mode == "complete"


def kept(frame: DataFrame) -> list[str]:
    return [str(one) for one in Plan(frame).stateful]


def test_state_is_told_by_operator_keys_and_functions(frames: Frames) -> None:
    clicks = frames["clicks"]
    assert kept(clicks) == []
    assert kept(clicks.groupBy("user").agg(F.count("*").alias("n"), F.max("at"))) == [
        "aggregation by user string of count(1) bigint, max(at) timestamp"
    ]
    assert kept(clicks.dropDuplicates(["user"])) == ["deduplication by user string"]
    assert kept(clicks.join(frames["users"], "user")) == []
    assert len(kept(clicks.join(frames["views"].select("user"), "user"))) == 1


def test_renamed_results_and_other_steps_leave_the_state_as_it_is(frames: Frames) -> None:
    before = frames["clicks"].groupBy("user").count()
    after = frames["clicks"].filter("page <> ''").groupBy("user").agg(F.count("*").alias("clicks"))
    assert kept(before) == kept(after.withColumn("twice", F.col("clicks") * 2))


def test_the_length_of_a_window_is_part_of_the_state(frames: Frames) -> None:
    def windows(*lengths: str) -> list[str]:
        return kept(frames["clicks"].groupBy(F.window("at", *lengths), "user").count())

    assert windows("1 minute") == windows("60 seconds")
    assert windows("1 minute") != windows("2 minutes")
    assert windows("1 minute", "10 seconds") != windows("1 minute", "20 seconds")


def test_sources_are_told_in_the_order_that_offsets_are_kept_in(frames: Frames) -> None:
    assert Plan(frames["clicks"].union(frames["views"])).sources == ["clicks", "views"]
    assert Plan(frames["views"].union(frames["clicks"])).sources == ["views", "clicks"]
