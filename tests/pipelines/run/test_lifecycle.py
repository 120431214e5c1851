"""Runs of pipelines on a real broker: results, lag, stops, restarts, outages and refusals."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.pipelines import Run, RunOptions, log, pipeline
from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.run import execution_mode
from millrace.testing import Broker

from ...waiting import until
from ..log_client import consume, create, produce

Start = Callable[..., Run]

# Real-time mode reports at the end of its batches, which last 5 s at least by default.
SHORT_BATCHES = {"spark.sql.streaming.realTimeMode.minBatchDuration": "500"}
# A client that times out soon, for a query whose broker is unavailable.
IMPATIENT = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    create(broker.bootstrap, "lines", "words", "loud", "slow", "fast", "python", "pages", "letters")
    produce(broker.bootstrap, "lines", ["to be", "or not to be"])


@pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
def words(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()


@pipeline(lines=log.text("lines"), output=log.text("loud"), delivery="at-least-once")
def loud(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("upper(value) as value")


@pytest.fixture
def start(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Start]:
    """Starts runs on the checkpoints of this test, and stops them after it."""
    started: list[Run] = []

    def start(pipeline: Pipeline, bootstrap: str = broker.bootstrap, **options: Any) -> Run:
        run = Run(pipeline, spark, bootstrap, RunOptions(checkpoints=tmp_path, **options))
        started.append(run)
        run.start()
        return run

    yield start
    for run in started:
        run.stop(now=True)


def variant(pipeline: Pipeline, name: str, **changes: Any) -> Pipeline:
    """The same pipeline under another name, with an output topic of that name."""
    return replace(pipeline, name=name, outputs={"output": log.text(name)}, **changes)


def ends(broker: Broker, *topics: str) -> list[int]:
    found = offsets.end_offsets(broker.bootstrap, topics)
    return [found[topic][0] for topic in topics]


def test_results_arrive_and_the_group_of_the_query_shows_its_progress(start: Start, broker: Broker) -> None:
    run = start(words)
    run.process_all_available()
    run.stop()
    found = [json.loads(record.value()) for record in consume(broker.bootstrap, "words", 4)]
    assert sorted((row["word"], row["count"]) for row in found) == [
        ("be", 2),
        ("not", 1),
        ("or", 1),
        ("to", 2),
    ]
    assert offsets.group_offsets(broker.bootstrap, "words", ["lines"]) == offsets.end_offsets(
        broker.bootstrap, ["lines"]
    )


def test_ended_run_keeps_no_client(start: Start) -> None:
    """Spark keeps the listener and the sink of a query; their clients would poll the broker forever."""
    before = clients()
    start(replace(words, name="brief"), available_now=True).wait(60)
    assert clients() == before


def clients() -> int:
    gc.collect()
    return sum(isinstance(value, AdminClient) for value in gc.get_objects())


def test_incompatible_change_is_refused_before_data_is_touched(
    start: Start, broker: Broker, tmp_path: Path
) -> None:
    start(words, available_now=True).wait(60)
    before = ends(broker, "words")

    def counted_by_length(lines: DataFrame) -> DataFrame:
        return lines.groupBy(F.length("value").alias("word")).count()

    with pytest.raises(PipelineError, match=r"has the keys .* in its aggregation instead of word string"):
        start(replace(words, function=counted_by_length))

    def with_another_column(lines: DataFrame) -> DataFrame:
        found = lines.selectExpr("explode(split(lower(value), ' ')) as word").groupBy("word").count()
        return found.withColumn("twice", 2 * F.col("count"))

    start(replace(words, function=with_another_column), available_now=True).wait(60)
    assert ends(broker, "words") == before


def test_stop_completes_the_batch_and_a_restart_resumes_after_it(start: Start, broker: Broker) -> None:
    has_written, may_end = threading.Event(), threading.Event()

    def delayed(_query: str, write: Any) -> Any:
        def write_slowly(frame: DataFrame, batch: int) -> None:
            write(frame, batch)
            has_written.set()
            may_end.wait(30)

        return write_slowly

    slow = variant(loud, "slow")
    run = start(slow, around_batches=delayed)
    assert has_written.wait(60)
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    stopping.join(0.5)
    assert stopping.is_alive(), "the stop did not wait for the batch"
    may_end.set()
    stopping.join(30)
    assert run.ended
    produce(broker.bootstrap, "lines", ["that is"])
    for _ in range(2):
        # Its progress is written asynchronously.
        again = start(replace(slow, mode="micro-batch"))
        assert again.planned[0].execution.is_async
        again.process_all_available()
        again.stop()
    assert ends(broker, "slow") == ends(broker, "lines")


def test_second_run_on_the_same_checkpoint_is_refused(start: Start) -> None:
    start(replace(loud, mode="micro-batch"))
    with pytest.raises(PipelineError, match="loud is already running"):
        start(loud)


def test_real_time_mode_shows_its_lag_and_resumes_exactly(start: Start, broker: Broker) -> None:
    fast = variant(loud, "fast", mode="real-time", trigger="500 milliseconds", settings=SHORT_BATCHES)
    for _ in range(2):
        run = start(fast)
        assert run.planned[0].execution.mode == "real-time"
        produce(broker.bootstrap, "lines", ["quick"])
        run.process_all_available()
        run.stop()
    assert ends(broker, "fast") == ends(broker, "lines")
    assert offsets.group_offsets(broker.bootstrap, "fast", ["lines"])["lines"][0] == ends(broker, "lines")[0]


def test_plan_that_spark_refuses_in_real_time_mode_runs_in_micro_batches(
    start: Start, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_mode, "_unsupported", lambda plan: None)

    def python(lines: DataFrame) -> DataFrame:
        return lines.select(F.udf(lambda value: value.upper())("value").alias("value"))

    run = start(variant(loud, "python", function=python))
    assert run.planned[0].execution.mode == "real-time"
    until(lambda: run.notes)
    run.process_all_available()
    run.stop()
    assert "runs in micro-batches: Spark refuses it" in run.notes[0]
    assert ends(broker, "python") == ends(broker, "lines")


def test_error_in_user_code_ends_the_run_with_one_line(start: Start, tmp_path: Path) -> None:
    def fails(lines: DataFrame) -> DataFrame:
        return lines.select(F.udf(lambda value: str(1 // (len(value) - len(value))))("value").alias("value"))

    run = start(replace(loud, name="fails", function=fails))
    with pytest.raises(
        PipelineError, match=r"^fails failed: ZeroDivisionError: .* the details are in "
    ) as caught:
        run.wait(60)
    assert "\n" not in str(caught.value)
    assert "Traceback" in (tmp_path / "fails.log").read_text()


def test_malformed_records_are_written_by_a_separate_query(start: Start, broker: Broker) -> None:
    produce(broker.bootstrap, "pages", ['{"page": "a"}', "nonsense"])
    pages = log.json("pages", "page string", malformed=log.dead_letters("letters"))
    run = start(
        replace(
            loud, name="pages", inputs={"pages": pages}, function=lambda pages: pages.selectExpr("page value")
        ),
        available_now=True,
    )
    assert run.wait(60)
    assert [query.name for query in run.planned] == ["pages", "pages.dead-letters.pages"]
    assert [record.value() for record in consume(broker.bootstrap, "letters", 1)] == [b"nonsense"]


def test_run_waits_for_an_unavailable_broker(start: Start) -> None:
    with Broker() as broker:
        create(broker.bootstrap, "lines", "loud")
        produce(broker.bootstrap, "lines", ["before"])
        patient = replace(
            loud,
            name="patient",
            mode="micro-batch",
            inputs={"lines": log.text("lines", options=IMPATIENT)},
            outputs={"output": log.text("loud", options={"kafka.delivery.timeout.ms": "1500", **IMPATIENT})},
        )
        broker.stop()
        threading.Timer(0.5, broker.start).start()
        run = start(patient, broker.bootstrap)
        run.process_all_available()
        broker.stop()
        until(lambda: run.waiting_for_broker)
        broker.start()
        produce(broker.bootstrap, "lines", ["after"])
        run.process_all_available()
        assert [record.value() for record in consume(broker.bootstrap, "loud", 2)] == [b"BEFORE", b"AFTER"]
        run.stop()
