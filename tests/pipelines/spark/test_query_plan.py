"""The state and the sources that Spark's plan of a DataFrame shows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.pipelines.spark.query_plan import Plan

Frames = dict[str, DataFrame]


def state(frame: DataFrame) -> list[str]:
    return [str(operator) for operator in Plan(frame).stateful]


def test_state_is_described_by_operator_keys_and_functions(frames: Frames) -> None:
    clicks = frames["clicks"]
    assert state(clicks) == []
    assert state(clicks.groupBy("user").agg(F.count("*").alias("n"), F.max("at"))) == [
        "aggregation by user string of count(1) bigint, max(at) timestamp"
    ]
    assert state(clicks.dropDuplicates(["user"])) == ["deduplication by user string"]
    assert state(clicks.join(frames["users"], "user")) == []
    assert len(state(clicks.join(frames["views"].select("user"), "user"))) == 1


def test_renamed_results_and_stateless_steps_do_not_change_the_state(frames: Frames) -> None:
    before = frames["clicks"].groupBy("user").count()
    after = frames["clicks"].filter("page <> ''").groupBy("user").agg(F.count("*").alias("clicks"))
    assert state(before) == state(after.withColumn("twice", F.col("clicks") * 2))


def test_window_length_is_part_of_the_state(frames: Frames) -> None:
    def windows(*lengths: str) -> list[str]:
        return state(frames["clicks"].groupBy(F.window("at", *lengths), "user").count())

    assert windows("1 minute") == windows("60 seconds")
    assert windows("1 minute") != windows("2 minutes")
    assert windows("1 minute", "10 seconds") != windows("1 minute", "20 seconds")


def test_sources_are_in_the_order_of_the_offsets_in_the_checkpoint(frames: Frames) -> None:
    assert Plan(frames["clicks"].union(frames["views"])).sources == ["clicks", "views"]
    assert Plan(frames["views"].union(frames["clicks"])).sources == ["views", "clicks"]
