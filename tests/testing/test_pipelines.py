"""Pipelines in tests: run over given records, with crashes where the input has marks."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from millrace.pipelines import PipelineError, log, pipeline
from millrace.testing import ABORT, PAUSE, Broker, Mark, Output, Record, read_records, run_pipeline


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pipeline(lines=log.text("lines"), output=log.text("loud-lines"))
def shout(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("upper(value) as value")


@pipeline(lines=log.text("lines-to-count"), output=log.json("words", key="word"))
def words(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()


def test_output_is_decoded(millrace_spark: Any, broker: Broker) -> None:
    assert run_pipeline(shout, millrace_spark, broker, lines=["hello", "world"]) == ["HELLO", "WORLD"]
    # The output leaves out records that the topics had before.
    assert run_pipeline(shout, millrace_spark, broker, lines=["again"]) == ["HELLO", "WORLD", "AGAIN"]


@pytest.mark.parametrize("crash", [Mark.BEFORE_WRITING, Mark.WHILE_WRITING])
def test_crash_leaves_no_trace_in_exactly_once_output(millrace_spark: Any, crash: Mark) -> None:
    with Broker() as broker:
        output = run_pipeline(words, millrace_spark, broker, lines=["to be", crash, "or not to be"])
    assert sorted((row["word"], row["count"]) for row in output) == [
        *[("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]
    ]


def test_crashes_in_a_row_and_at_the_end_leave_no_trace_in_exactly_once_output(millrace_spark: Any) -> None:
    crash = Mark.AFTER_WRITING
    lines = ["to be", crash, "or not", crash, crash, "to be", PAUSE, "that is", crash]
    with Broker() as broker:
        output = run_pipeline(words, millrace_spark, broker, lines=lines)
    assert {word: counted["count"] for word, counted in output.newest.items()} == {
        **{"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1}
    }
    # Each word appears once per batch that contains it: nothing is lost or repeated.
    assert sorted((row["word"], row["count"]) for row in output) == [
        *[("be", 1), ("be", 2), ("is", 1), ("not", 1), ("or", 1), ("that", 1), ("to", 1), ("to", 2)]
    ]


def test_crash_repeats_records_in_at_least_once_output(millrace_spark: Any) -> None:
    @pipeline(lines=log.text("in"), output=log.text("out"), delivery="at-least-once")
    def copy(lines: DataFrame) -> DataFrame:
        return lines

    with Broker() as broker:
        output = run_pipeline(copy, millrace_spark, broker, lines=["a", ABORT, "b"])
    assert output == ["a", "a", "b"]


def test_records_have_keys_times_headers_and_partitions(millrace_spark: Any) -> None:
    @pipeline(
        events=log.json("events", "n int", metadata=("key", "timestamp", "headers", "partition")),
        output=log.json("copies", key="key", headers="headers"),
    )
    def copy(events: DataFrame) -> DataFrame:
        return events

    noon = datetime(2026, 1, 16, 12, tzinfo=UTC)
    with Broker({"num.partitions": "2"}) as broker:
        fed = Record({"n": 1}, key="k", timestamp=noon, headers={"trace": "7"}, partition=1)
        output = run_pipeline(copy, millrace_spark, broker, events=[fed, '{"n": 2}'])
    first = next(record for record in output.records if record.key == "k")
    assert first == Record(
        {"n": 1, "key": "k", "timestamp": "2026-01-16T12:00:00.000000Z", "partition": 1},
        key="k",
        headers=(("trace", b"7"),),
    )
    assert {value["n"] for value in output} == {1, 2}


def test_several_outputs_and_dead_letters_are_separate(millrace_spark: Any) -> None:
    @pipeline(
        numbers=log.json("numbers", "n int", malformed=log.dead_letters("bad-numbers")),
        output={"even": log.json("even"), "odd": log.json("odd")},
    )
    def parted(numbers: DataFrame) -> dict[str, DataFrame]:
        return {"even": numbers.where("n % 2 = 0"), "odd": numbers.where("n % 2 = 1")}

    with Broker() as broker:
        numbers = [{"n": 1}, {"n": 2}, "not JSON", ABORT, {"n": 3}]
        outputs = run_pipeline(parted, millrace_spark, broker, numbers=numbers)
        dead = read_records(broker.bootstrap, log.text("bad-numbers"))
    assert outputs == {"even": [{"n": 2}], "odd": [{"n": 1}, {"n": 3}]}
    assert dead == ["not JSON"]


def test_error_of_a_python_function_is_shown_to_the_test(millrace_spark: Any) -> None:
    @udf("int")
    def inverted(n):
        return 1 // n

    @pipeline(numbers=log.json("numbers", "n int"), output=log.json("inverses"))
    def inverses(numbers: DataFrame) -> DataFrame:
        return numbers.select(inverted("n").alias("n"))

    with Broker() as broker, pytest.raises(PipelineError) as caught:
        run_pipeline(inverses, millrace_spark, broker, numbers=[{"n": 0}])
    assert "inverses failed: ZeroDivisionError: integer division or modulo by zero" in str(caught.value)
    assert "\n" not in str(caught.value)
    [note] = caught.value.__notes__
    assert "in inverted" in note
    assert "test_pipelines.py" in note
    assert "pyspark" not in note
    assert "\tat " not in note


def test_unknown_input_is_named(millrace_spark: Any, broker: Broker) -> None:
    with pytest.raises(TypeError, match="shout has no input called line; it has lines"):
        run_pipeline(shout, millrace_spark, broker, line=["hello"])


def test_value_that_does_not_fit_the_format_is_named(millrace_spark: Any, broker: Broker) -> None:
    with pytest.raises(TypeError, match=r"the records of lines are text: give str, not \{'a': 1\}"):
        run_pipeline(shout, millrace_spark, broker, lines=[{"a": 1}])


def test_output_has_the_newest_value_of_each_key() -> None:
    output = Output([Record(1, key="a"), Record(2, key="b"), Record(3, key="a")])
    assert output == [1, 2, 3]
    assert output.newest == {"a": 3, "b": 2}
