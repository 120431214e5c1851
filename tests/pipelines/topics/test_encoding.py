"""Columns to records: keys, values, headers and partitions, and outputs that are refused."""

import pytest
from pyspark.sql import SparkSession

from millrace.pipelines import LogTopic, PipelineError, log
from millrace.pipelines.topics import decoding, encoding

from .source_records import records


def test_json_round_trip(spark: SparkSession) -> None:
    schema = (
        "id bigint, exact decimal(38,8), real double, at timestamp, wall timestamp_ntz, day date,"
        " inner struct<x:int>, list array<string>, counts map<string,int>, raw binary"
    )
    frame = spark.sql(
        "select 9223372036854775807 id, 123456789012345678901234567890.12345678 exact,"
        " double('Infinity') real,"
        " timestamp'2026-11-01 12:00:00.123456Z' at, timestamp_ntz'2026-11-01 12:00:00.000001' wall,"
        " date'2026-11-01' day, named_struct('x', 1) inner, array('a', null) list, map('k', 2) counts,"
        " unhex('ff00') raw"
    )
    encoded = encoding.encode(frame, log.json("events", key="id"))
    assert encoded.columns == ["topic", "value", "key"]
    [row] = encoded.collect()
    assert (row["topic"], row["key"]) == ("events", "9223372036854775807")
    assert '"at":"2026-11-01T12:00:00.123456Z"' in row["value"]
    [back] = decoding.decode(records(spark, row["value"]), log.json("events", schema)).collect()
    assert back == frame.collect()[0]


def test_keys_headers_and_partitions_come_from_columns(spark: SparkSession) -> None:
    frame = spark.sql(
        "select struct(1 as a) k, 'v' as value, map('trace', 'x', 'none', null) h, 3L p"
        " union all select struct(2 as a), 'w', null, null"
    )
    [first, second] = encoding.encode(
        frame, log.text("events", key="K", headers="h", partition="p")
    ).collect()
    assert (first["key"], first["value"], first["partition"]) == ('{"a":1}', "v", 3)
    assert [tuple(header) for header in first["headers"]] == [("trace", b"x"), ("none", None)]
    assert (second["headers"], second["partition"]) == (None, None)
    kept = encoding.encode(
        spark.sql("select unhex('ff') value, array(struct('a' as key, unhex('fe') as value)) headers"),
        log.bytes("events", headers="headers"),
    )
    [row] = kept.collect()
    assert (row["value"], [tuple(header) for header in row["headers"]]) == (b"\xff", [("a", b"\xfe")])


def test_time_as_key_is_the_same_text_in_every_time_zone(spark: SparkSession) -> None:
    frame = spark.sql("select * from values (timestamp'2026-11-01 12:00:00Z', 1), (null, 2) as t(at, n)")
    found = encoding.encode(frame, log.json("events", key="at")).collect()
    assert [row["key"] for row in found] == ["2026-11-01T12:00:00.000000Z", None]


def test_row_with_nothing_but_its_key_deletes_the_key(spark: SparkSession) -> None:
    frame = spark.sql("select * from values ('a', 1, null), ('b', null, null) as t(id, n, s)")
    found = encoding.encode(frame, log.json("events", key="id")).collect()
    assert [(row["key"], row["value"]) for row in found] == [("a", '{"id":"a","n":1}'), ("b", None)]
    unkeyed = encoding.encode(frame.select("n"), log.json("events")).collect()
    assert [row["value"] for row in unkeyed] == ['{"n":1}', "{}"]
    only = encoding.encode(frame.select("id"), log.json("events", key="id")).collect()
    assert [row["value"] for row in only] == ['{"id":"a"}', '{"id":"b"}']


@pytest.mark.parametrize(
    ("query", "topic", "problem"),
    [
        ("select 1 a", log.json("e", key="b"), "there is no column b for the key, only a"),
        ("select 1 a", log.text("e"), "there is no column value for the text value, only a"),
        ("select 1 value", log.text("e"), "the value column is int; make it string"),
        ("select 'v' value, 1 b", log.text("e"), "a text record has no place for b"),
        ("select 'v' value, 1 h", log.text("e", headers="h"), "the headers column h is int"),
        ("select 'v' value, 'x' p", log.text("e", partition="p"), "the partition column p is string"),
        ("select 'v' value", log.text("e", headers="value"), "value is declared as headers and as value"),
        ("select map('a','b') h", log.json("e", headers="h"), "no column is left for the value"),
        ("select 1 a, 2 A", log.json("e"), "has the column A twice"),
        ("select 1 a, 2 b", log.json("e", key="a", headers="a"), "a is declared as headers and as key"),
        ("select 1 a", log.json("e.*", pattern=True), "an output is one topic"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    spark: SparkSession, query: str, topic: LogTopic, problem: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        encoding.encode(spark.sql(query), topic)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
