"""Records to columns, and the reasons why records are malformed."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.pipelines import LogTopic, PipelineError, log
from millrace.pipelines.topics import decoding

from .source_records import records


def reasons(
    spark: SparkSession, topic: LogTopic, *values: Any, keys: tuple[Any, ...] = ()
) -> list[str | None]:
    """The reason why each value is malformed, or None."""
    found = decoding.malformed(records(spark, *values, keys=keys), topic).collect()
    by_offset = {row["offset"]: row["reason"] for row in found}
    return [by_offset.get(offset) for offset in range(len(values))]


def utc(*parts: Any) -> datetime:
    """A time as `collect` returns it: in this machine's zone, without a zone."""
    return datetime(*parts, tzinfo=UTC).astimezone().replace(tzinfo=None)


def test_json_is_decoded_into_the_columns_of_its_schema(spark: SparkSession) -> None:
    schema = (
        "n int, big bigint, exact decimal(38,8), real double, yes boolean, s string, at timestamp, day date,"
        " inner struct<x:int,y:array<string>>, counts map<string,int>, raw binary"
    )
    row = (
        '{"n":1,"big":9223372036854775807,"exact":123456789012345678901234567890.12345678,"real":"NaN",'
        '"yes":true,"s":"grün","at":"2026-11-01T12:00:00.123456+02:00","day":"2026-11-01",'
        '"inner":{"x":2,"y":["a",null]},"counts":{"k":3},"raw":"aGk=","more":{"is":"ignored"}}'
    )
    [found, empty] = decoding.decode(records(spark, row, " {} "), log.json("events", schema)).collect()
    assert found["n"] == 1
    assert found["big"] == 9223372036854775807
    assert found["exact"] == Decimal("123456789012345678901234567890.12345678")
    assert found["real"] != found["real"]
    assert (found["yes"], found["s"], found["day"]) == (True, "grün", date(2026, 11, 1))
    assert found["at"] == utc(2026, 11, 1, 10, 0, 0, 123456)
    assert (found["inner"].asDict(), found["counts"]) == ({"x": 2, "y": ["a", None]}, {"k": 3})
    assert bytes(found["raw"]) == b"hi"
    assert set(empty.asDict().values()) == {None}


def test_times_in_json_may_be_text_or_seconds(spark: SparkSession) -> None:
    values = ['{"at":"2026-11-01T12:00:00Z"}', '{"at":"2026-11-01 12:00:00+00:00"}', '{"at":1793534400}']
    found = decoding.decode(records(spark, *values), log.json("events", "at timestamp")).collect()
    assert [row["at"] for row in found] == [utc(2026, 11, 1, 12)] * 3


def test_malformed_json_is_reported_with_the_reason(spark: SparkSession) -> None:
    topic = log.json(
        "events",
        "n int, at timestamp, inner struct<x:int,y:string>, list array<int>, exact decimal(4,2),"
        " must string not null",
        malformed="drop",
    )
    cases: dict[Any, str | None] = {
        '{"n":1,"must":"a"}': None,
        None: "the value is null",
        b'{"must":"\xff"}': "the value is not UTF-8",
        " ": "the value is empty",
        "null": "the value is not a JSON object: null",
        "[1]": "the value is not a JSON object: [1]",
        '[{"must":"a"}]': 'the value is not a JSON object: [{"must":"a"}]',
        "5": "the value is not a JSON object: 5",
        '{"must":"a"': 'the value is not JSON: {"must":"a"',
        '{"must":"a"} and more': 'the value is not JSON: {"must":"a"} and more',
        '{"must":"a"}{"must":"b"}': 'the value is not JSON: {"must":"a"}{"must":"b"}',
        '{"must":"a","n":"1"}': "n is not int: 1",
        '{"must":"a","n":1.5}': "n is not int: 1.5",
        '{"must":"a","n":3000000000}': "n is not int: 3000000000",
        '{"must":"a","at":"soon"}': "at is not timestamp: soon",
        '{"must":"a","at":1793534400000}': (
            "at is after the year 9999 (a number is in seconds; for milliseconds declare `at bigint` and use"
            " timestamp_millis(at))"
        ),
        '{"must":"a","inner":[1]}': "inner is not struct<x:int,y:string>: [1]",
        '{"must":"a","inner":{"x":"b","y":"c"}}': "inner.x is not int: b",
        '{"must":"a","list":[1,"b"]}': 'list is not array<int>: [1,"b"]',
        '{"must":"a","exact":123.45}': "exact is not decimal(4,2): 123.45",
        '{"n":1}': "must is missing",
    }
    found = reasons(spark, topic, *cases)
    assert dict(zip(cases, found, strict=True)) == cases
    kept = decoding.decode(records(spark, *cases), topic).collect()
    assert [row["must"] for row in kept] == ["a"]


def test_each_value_is_parsed_once(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    topic = log.json("events", "n int, at timestamp, must string not null", malformed="drop")
    decoding.decode(records(spark, "{}").repartition(1), topic).explain("simple")
    assert capsys.readouterr().out.count("from_json") == 1


def test_text_is_utf8_and_may_be_null(spark: SparkSession) -> None:
    topic = log.text("events", malformed="drop")
    assert reasons(spark, topic, "grün", "", None, b"\xff") == [None, None, None, "the value is not UTF-8"]
    found = decoding.decode(records(spark, "grün", "", None, b"\xff"), topic).collect()
    assert [row["value"] for row in found] == ["grün", "", None]


def test_bytes_are_not_decoded(spark: SparkSession) -> None:
    topic = log.bytes("events", metadata=("key",))
    frame = records(spark, b"\xff\x00", None, keys=(b"\xfe", None))
    found = decoding.decode(frame, topic).collect()
    assert [(row["value"], row["key"]) for row in found] == [(b"\xff\x00", b"\xfe"), (None, None)]
    assert decoding.malformed(frame, topic).collect() == []


def test_metadata_become_columns(spark: SparkSession) -> None:
    topic = log.text(
        "events",
        malformed="drop",
        metadata=("key", "topic", "partition", "offset", "timestamp", "headers"),
    )
    found = decoding.decode(records(spark, "a", "b", keys=(b"k", b"\xff")), topic)
    assert found.columns == ["value", "key", "topic", "partition", "offset", "timestamp", "headers"]
    assert [tuple(row) for row in found.collect()] == [("a", "k", "events", 0, 0, utc(2026, 11, 1, 12), None)]
    assert reasons(spark, topic, "b", keys=(b"\xff",)) == ["the key is not UTF-8"]


def test_malformed_record_fails_with_its_offset_the_reason_and_a_remedy(spark: SparkSession) -> None:
    frame = decoding.decode(records(spark, "{}", '{"n":\n"one"}'), log.json("events", "n int"))
    with pytest.raises(PySparkException) as raised:
        # The query fails even if it selects no column.
        frame.count()
    assert decoding.failure(str(raised.value)) == (
        "cannot read topic events, partition 0, offset 1: n is not int: one; correct the producer or the"
        " schema, or skip such records: malformed='drop' or"
        " malformed=log.dead_letters('events.dead-letters')"
    )


def test_table_has_the_newest_value_of_every_key(spark: SparkSession) -> None:
    values = ('{"n":1}', '{"n":2}', '{"n":3}', None, '{"n":4}', "broken", '{"n":5}')
    keys = (b"1", b"2", b"1", b"2", b"3", b"3", None)
    frame = records(spark, *values, keys=keys)
    table = decoding.newest(frame, log.table("events", "n int", key="id"))
    assert sorted(map(tuple, table.collect())) == [("1", 3), ("3", 4)]
    typed = decoding.newest(frame, log.table("events", "id int, n int", key="id"))
    assert sorted(map(tuple, typed.collect())) == [(1, 3), (3, 4)]
    topic = log.table("events", "id int, n int", key="id")
    assert reasons(spark, topic, "{}", "{}", "{}", keys=(b"1", b"one", None)) == [
        None,
        "the key is not int: one",
        "the record of a table has no key",
    ]


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (log.json("events", "n integger"), 'events: Spark cannot read the schema "n integger"'),
        (log.json("events", "n int, N int"), "events: the schema has the column N twice"),
        (
            log.json("events", "Key int", metadata=("key",)),
            "its schema and metadata together has the column key",
        ),
        (log.json("events"), "events needs a schema to be read"),
    ],
)
def test_invalid_declarations_are_refused(spark: SparkSession, topic: LogTopic, problem: str) -> None:
    with pytest.raises(PipelineError) as refused:
        decoding.decode(records(spark), topic)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
