"""Records with schemas of a registry, to columns and back, with Confluent's serializers on the other side."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from tests.served_app import ServedApp

from millrace.pipelines import LogTopic, PipelineError, log, pipeline
from millrace.pipelines.topics import decoding, encoding
from millrace.registry.app import registry_app
from millrace.registry.codecs import codec
from millrace.registry.framing import frame
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options
from millrace.testing import Broker
from millrace.testing.pipelines import ABORT, run_pipeline
from millrace.testing.records import read_records

from .source_records import records

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
JSON_V1 = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "additionalProperties": False,
}
JSON_V2 = {**JSON_V1, "properties": {"id": {"type": "integer"}, "item": {"type": ["string", "null"]}}}
PROTO_V1 = 'syntax = "proto3"; message Order { int32 id = 1; }'
PROTO_V2 = """syntax = "proto3";
message Order { int32 id = 1; string item = 2; repeated int64 sizes = 3; map<string, Inner> inner = 4;
  State state = 5;
  message Inner { bytes raw = 1; } enum State { NEW = 0; DONE = 1; } }"""


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[ServedApp]:
    served = ServedApp(lambda port: registry_app(Options(broker.bootstrap, Identity("127.0.0.1", port))))
    yield served
    served.close()


@pytest.fixture
def client(registry: ServedApp) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("test_", "").replace("_", "-")[:60]


def rows(spark: SparkSession, topic: LogTopic, *values: Any) -> list[dict[str, Any]]:
    found = decoding.decode(records(spark, *values), topic).collect()
    return [row.asDict(recursive=True) for row in found]


def reasons(spark: SparkSession, topic: LogTopic, *values: Any) -> list[str | None]:
    found = decoding.malformed(records(spark, *values), topic).collect()
    by_offset = {row["offset"]: row["reason"] for row in found}
    return [by_offset.get(offset) for offset in range(len(values))]


def test_avro_of_all_versions_is_resolved_to_the_latest(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    context = SerializationContext(name, MessageField.VALUE)
    old = AvroSerializer(client, json.dumps(V1))({"id": 1}, context)
    new = AvroSerializer(client, json.dumps(V2))({"id": 1 << 40, "item": "x", "tags": ["a", "b"]}, context)
    topic = log.avro(name, registry=registry.url)
    frame_ = decoding.decode(records(spark, old, new), topic)
    assert [row.asDict() for row in frame_.collect()] == [
        {"id": 1, "item": None, "tags": []},
        {"id": 1 << 40, "item": "x", "tags": ["a", "b"]},
    ]
    assert frame_.schema.simpleString() == "struct<id:bigint,item:string,tags:array<string>>"
    # The older version ignores what it does not know.
    assert rows(spark, log.avro(name, registry=registry.url, version=1), old) == [{"id": 1}]


def test_avro_is_read_by_native_expressions(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    client.register_schema(f"{name}-value", Schema(json.dumps(V2), "AVRO"))
    decoded = decoding.decode(records(spark), log.avro(name, registry=registry.url))
    plan = decoded._jdf.queryExecution().executedPlan().toString()
    assert "from_avro" in plan
    assert "Python" not in plan


def test_malformed_avro_is_reported_with_the_reason(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    schema_id = client.register_schema(f"{name}-value", Schema(json.dumps(V2), "AVRO"))
    good = frame(schema_id, codec("AVRO", json.dumps(V2)).encode({"id": 1, "item": None, "tags": []}))
    topic = log.avro(name, registry=registry.url, malformed="drop")
    values = [
        good,
        None,
        b"",
        b"\x01" + good[1:],
        frame(4711, b"x"),
        frame(schema_id, b"\xff" * 12),
        b"\0\0\0",
    ]
    assert reasons(spark, topic, *values) == [
        None,
        "the value is null",
        "the value does not begin with a zero byte and a schema id",
        "the value does not begin with a zero byte and a schema id",
        f"schema id 4711 was no version of {name}-value when the query started",
        f"the value cannot be read with schema id {schema_id}",
        "the value does not begin with a zero byte and a schema id",
    ]
    assert rows(spark, topic, *values) == [{"id": 1, "item": None, "tags": []}]


def test_avro_with_references_is_read(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    user = {"type": "record", "name": "User", "namespace": "n", "fields": [{"name": "age", "type": "int"}]}
    order = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "a", "type": "n.User"}, {"name": "b", "type": ["null", "n.User"]}],
    }
    registry.http.post(f"/subjects/{name}-user/versions", json={"schema": json.dumps(user)})
    references = [{"name": "n.User", "subject": f"{name}-user", "version": 1}]
    body = {"schema": json.dumps(order), "references": references}
    schema_id = registry.http.post(f"/subjects/{name}-value/versions", json=body).json()["id"]
    data = codec("AVRO", json.dumps(order), {"n.User": json.dumps(user)}).encode({"a": {"age": 3}, "b": None})
    found = rows(spark, log.avro(name, registry=registry.url), frame(schema_id, data))
    assert found == [{"a": {"age": 3}, "b": None}]


def test_rows_are_written_as_avro_that_confluent_reads(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    frame_ = spark.sql(
        "select 1 as id, 'x' as item, array(1.5D, null) as sizes, map('k', struct(true as yes)) as more,"
        " cast('12.34' as decimal(8,2)) as price, timestamp_millis(1000) as at, date'2026-01-02' as day"
    )
    topic = log.avro(name, registry=registry.url, key="id")
    [row] = encoding.encode(frame_, topic).collect()
    context = SerializationContext(name, MessageField.VALUE)
    found = AvroDeserializer(client)(bytes(row["value"]), context)
    assert (found["id"], found["item"], found["sizes"]) == (1, "x", [1.5, None])
    assert found["more"] == {"k": {"yes": True}}
    assert str(found["price"]) == "12.34"
    assert row["key"] == "1"
    # What was written is read back as it was.
    assert rows(spark, topic, bytes(row["value"])) == [frame_.collect()[0].asDict(recursive=True)]


def test_incompatible_output_is_refused_before_the_query_starts(
    spark: SparkSession, registry: ServedApp, name: str
) -> None:
    topic = log.avro(name, registry=registry.url)
    encoding.encode(spark.sql("select 1 as id"), topic)
    with pytest.raises(PipelineError, match=r"the registry refuses the schema.*TYPE_MISMATCH"):
        encoding.encode(spark.sql("select 'x' as id"), topic)


def test_strategies_name_the_subject(spark: SparkSession, registry: ServedApp, name: str) -> None:
    row = spark.sql("select 1 as id")
    schema = json.dumps({"type": "record", "name": "shop.Made", "fields": [{"name": "id", "type": "int"}]})
    for strategy, subject in (
        ("RecordNameStrategy", "shop.Made"),
        ("TopicRecordNameStrategy", f"{name}-shop.Made"),
        ("TopicNameStrategy", f"{name}-value"),
    ):
        encoding.encode(row, log.avro(name, schema, registry=registry.url, strategy=strategy))
        assert registry.http.get(f"/subjects/{subject}/versions").json() == [1]
    with pytest.raises(PipelineError, match="needs subject="):
        decoding.decode(records(spark), log.avro(name, registry=registry.url, strategy="RecordNameStrategy"))


def test_json_schema_makes_a_round_trip(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    context = SerializationContext(name, MessageField.VALUE)
    values = [
        JSONSerializer(json.dumps(JSON_V1), client)({"id": 1}, context),
        JSONSerializer(json.dumps(JSON_V2), client)({"id": 2, "item": "grün"}, context),
        JSONSerializer(json.dumps(JSON_V2), client)({}, context),
    ]
    topic = log.json_schema(name, registry=registry.url, malformed="drop")
    assert rows(spark, topic, *values) == [
        {"id": 1, "item": None},
        {"id": 2, "item": "grün"},
        {"id": None, "item": None},
    ]
    schema_id = int.from_bytes(values[0][1:5], "big")
    bad = [frame(schema_id, each) for each in (b"", b"{", b"[]", b'{"id":"x"}', b'{"id":1} more')]
    assert all(reasons(spark, topic, *bad))
    out = log.json_schema(f"{name}-out", registry=registry.url)
    [row] = encoding.encode(spark.sql("select 1 as id, 'x' as item"), out).collect()
    read = JSONDeserializer(None, schema_registry_client=client)(bytes(row["value"]), context)
    assert read == {"id": 1, "item": "x"}


def test_protobuf_makes_a_round_trip(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    ids = [client.register_schema(f"{name}-value", Schema(text, "PROTOBUF")) for text in (PROTO_V1, PROTO_V2)]
    full = {
        "id": 2,
        "item": "x",
        "sizes": [1, 1 << 40],
        "inner": {"k": {"raw": "AP8="}},
        "state": "DONE",
    }
    values = [
        frame(ids[0], codec("PROTOBUF", PROTO_V1).encode({"id": 1})),
        frame(ids[1], codec("PROTOBUF", PROTO_V2).encode(full)),
        frame(ids[1], b"\0\xff\xff"),
        frame(4711, b"\0"),
    ]
    topic = log.protobuf(name, registry=registry.url, malformed="drop")
    found = rows(spark, topic, *values)
    assert found[0]["id"] == 1
    assert found[1] == {**full, "inner": {"k": {"raw": bytearray(b"\0\xff")}}}
    assert [bool(reason) for reason in reasons(spark, topic, *values)] == [False, False, True, True]
    out = log.protobuf(f"{name}-out", PROTO_V1, registry=registry.url)
    [row] = encoding.encode(spark.sql("select 7 as id"), out).collect()
    assert bytes(row["value"])[5:] == b"\0\x08\x07"
    with pytest.raises(PipelineError, match="needs its schema"):
        encoding.encode(spark.sql("select 7 as id"), log.protobuf(name, registry=registry.url))


def test_missing_registries_subjects_and_versions_are_named(
    spark: SparkSession, registry: ServedApp, client: SchemaRegistryClient, name: str
) -> None:
    with pytest.raises(PipelineError, match=f"has no subject {name}-value"):
        rows(spark, log.avro(name, registry=registry.url))
    with pytest.raises(PipelineError, match=r"no schema registry at http://127\.0\.0\.1:1"):
        rows(spark, log.avro(name, registry="http://127.0.0.1:1"))
    client.register_schema(f"{name}-value", Schema('"string"', "AVRO"))
    with pytest.raises(PipelineError, match="not a record"):
        rows(spark, log.avro(name, registry=registry.url))
    with pytest.raises(PipelineError, match="has no version 9, only 1"):
        rows(spark, log.avro(name, registry=registry.url, version=9))
    with pytest.raises(PipelineError, match="is of type AVRO, not JSON"):
        rows(spark, log.json_schema(name, registry=registry.url))


@pytest.mark.proof
def test_running_pipeline_survives_a_crash_and_sets_malformed_records_aside(
    spark: SparkSession,
    broker: Broker,
    registry: ServedApp,
    client: SchemaRegistryClient,
    name: str,
    tmp_path: Path,
) -> None:
    letters = log.dead_letters(f"{name}-bad")
    source = log.avro(f"{name}-in", registry=registry.url, malformed=letters)

    @pipeline(orders=source, output=log.avro(f"{name}-out", registry=registry.url, key="id"))
    def copies(orders: DataFrame) -> DataFrame:
        return orders.select("id", "item")

    text = json.dumps(V2)
    schema_id = client.register_schema(f"{name}-in-value", Schema(text, "AVRO"))

    def order(number: int) -> bytes:
        value = {"id": number, "item": {"string": f"item {number}"}, "tags": []}
        return frame(schema_id, codec("AVRO", text).encode(value))

    records = [order(1), b"not framed", order(2), ABORT, order(3)]
    output = run_pipeline(copies, spark, broker, tmp_path, orders=records)
    deserialize = AvroDeserializer(client)
    context = SerializationContext(f"{name}-out", MessageField.VALUE)
    found = [deserialize(bytes(value), context) for value in output]
    assert found == [{"id": number, "item": f"item {number}"} for number in (1, 2, 3)]
    assert list(read_records(broker.bootstrap, log.bytes(letters.topic))) == [b"not framed"]
