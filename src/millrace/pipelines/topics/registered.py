"""Records with schemas of a registry, to columns and back.

Avro and JSON Schema are read and written by Spark's own expressions, so that real-time mode stays possible.
Spark's expressions for Protobuf are not in the connector jars; Python decodes and encodes it.

The versions of the subject are read when a query is planned. A record of any of them is resolved to the
version that the topic declares. A record with another id is malformed.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics import registered_types as types
from millrace.pipelines.topics.declaration import LogTopic
from millrace.registry.client import RegisteredSchema, RegistryClient, RegistryError, subject_name
from millrace.registry.framing import MAGIC
from millrace.registry.schemas import AVRO, JSON, PROTOBUF, InvalidSchema

DEFAULT_REGISTRY = "http://localhost:8081"
REGISTRY_VARIABLE = "MILLRACE_REGISTRY"

_TYPES = {"avro": AVRO, "json_schema": JSON, "protobuf": PROTOBUF}
# A column that every readable record has, and no malformed one: Spark gives a malformed one nulls alone.
_READ = "__read"
# A column that Spark fills if a part of the JSON is not of its type.
_CORRUPT = "__corrupt"
_JSON_READING = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_HEADER_BYTES = 5
# The parts of a plan ask for the same schemas one after the other.
_CACHED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The schema whose columns are read, and those that records may have been written with, by id."""

    subject: str
    reader: RegisteredSchema
    writers: dict[int, RegisteredSchema]


_cache: dict[tuple[str, str, int | str, str], tuple[float, _Schemas]] = {}


def registry_url(topic: LogTopic) -> str:
    """The address of the registry of a topic."""
    return topic.registry or os.environ.get(REGISTRY_VARIABLE) or DEFAULT_REGISTRY


def _schemas(topic: LogTopic) -> _Schemas:
    url = registry_url(topic)
    subject = topic.subject or _subject(topic, "")
    key = (url, subject, topic.version, topic.format)
    found = _cache.get(key)
    if found is None or time.monotonic() - found[0] > _CACHED_SECONDS:
        found = _cache[key] = (time.monotonic(), _load(topic, url, subject))
    return found[1]


def _load(topic: LogTopic, url: str, subject: str) -> _Schemas:
    client = RegistryClient(url)
    try:
        versions = client.versions(subject)
    except RegistryError as error:
        raise PipelineError(f"{topic.name}: {error.message}; start one, or declare registry=URL") from None
    finally:
        client.close()
    if not versions:
        raise PipelineError(
            f"{topic.name}: the registry at {url} has no subject {subject}; register a schema,"
            " or declare subject="
        )
    wanted = [each for each in versions if topic.version in ("latest", each.version)]
    if not wanted:
        numbers = ", ".join(str(each.version) for each in versions)
        raise PipelineError(f"{topic.name}: {subject} has no version {topic.version}, only {numbers}")
    reader = wanted[-1]
    if reader.type != _TYPES[topic.format]:
        raise PipelineError(f"{topic.name}: {subject} is of type {reader.type}, not {_TYPES[topic.format]}")
    same_type = {each.id: each for each in versions if each.type == reader.type}
    return _Schemas(subject, reader, same_type)


def _subject(topic: LogTopic, record: str) -> str:
    if not record and topic.strategy.rpartition(".")[2] != "TopicNameStrategy":
        raise PipelineError(
            f"{topic.name}: reading with {topic.strategy} needs subject=, the subject to read"
        )
    try:
        return subject_name(topic.name, "value", record, topic.strategy)
    except ValueError as error:
        raise PipelineError(f"{topic.name}: {error}") from None


# Reading


def columns(topic: LogTopic) -> StructType:
    """The columns of a topic."""
    reader = _schemas(topic).reader
    try:
        if topic.format == "avro":
            return types.from_avro_schema(types.whole_avro(reader.text, reader.references))
        if topic.format == "json_schema":
            return types.from_json_schema(json.loads(reader.text))
        return types.from_protobuf(reader.text, reader.references)
    except (InvalidSchema, ValueError) as error:
        raise PipelineError(f"{topic.name}: the schema has no columns for Spark: {error}") from None


def parsed(topic: LogTopic) -> Column:
    """A struct of the columns of a record, and a mark that is null if the record cannot be read."""
    # Always true, but Spark takes it for nondeterministic, and so does not parse again for each filter.
    body = F.when(F.spark_partition_id() >= 0, F.expr(f"substring(value, {_HEADER_BYTES + 1})"))
    if topic.format == "avro":
        return _parsed_avro(_schemas(topic), body)
    whole = StructType(list(columns(topic).fields)).add(_READ, "boolean").add(_CORRUPT, "string")
    text = body.cast("string") if topic.format == "json_schema" else _protobuf_text(topic)
    # Inside of the braces, so that text after the object is noticed; the mark is read with the object.
    marked = F.concat(F.substring(F.rtrim(text), 1, F.length(F.rtrim(text)) - 1), F.lit(_mark_end()))
    empty = F.trim(text).rlike(r"^\{\s*\}$")
    json_text = F.when(empty, F.lit(f'{{"{_READ}":true}}')).when(F.trim(text).startswith("{"), marked)
    return F.when(_is_framed(), F.from_json(json_text, whole, _JSON_READING))


def _mark_end() -> str:
    return f',"{_READ}":true}}'


def _parsed_avro(schemas: _Schemas, body: Column) -> Column:
    from pyspark.sql.avro.functions import from_avro

    reader = types.whole_avro(schemas.reader.text, schemas.reader.references)
    if not isinstance(reader, dict) or reader.get("type") != "record":
        raise PipelineError(f"{schemas.subject}: the Avro schema is not a record, and so has no columns")
    mark = {"name": _READ, "type": "boolean", "default": True}
    evolved = json.dumps({**reader, "fields": [*reader["fields"], mark]})
    found: Column | None = None
    for schema_id, writer in schemas.writers.items():
        text = json.dumps(types.whole_avro(writer.text, writer.references))
        read = from_avro(body, text, {"mode": "PERMISSIVE", "avroSchema": evolved})
        is_this = _is_framed() & (_schema_id() == schema_id)
        found = F.when(is_this, read) if found is None else found.when(is_this, read)
    assert found is not None
    return found


def _protobuf_text(topic: LogTopic) -> Column:
    schemas = _schemas(topic)
    writers = {number: (each.text, dict(each.references)) for number, each in schemas.writers.items()}

    def read(value: bytes | None) -> str | None:
        from millrace.pipelines.topics.registered_types import protobuf_json

        return None if value is None else protobuf_json(writers, bytes(value))

    return F.udf(read, StringType())(F.col("value"))


def _is_framed() -> Column:
    return (F.length("value") >= _HEADER_BYTES) & (F.hex(F.expr("substring(value, 1, 1)")) == f"{MAGIC:02X}")


def _schema_id() -> Column:
    return F.conv(F.hex(F.expr("substring(value, 2, 4)")), 16, 10).cast("bigint")


def rules(topic: LogTopic, parsed: Column) -> list[tuple[Column, Column]]:
    """The ways in which a record is malformed: conditions, and reasons to report."""
    schemas = _schemas(topic)
    is_known = _schema_id().isin(list(schemas.writers))
    unknown = F.concat(
        F.lit("schema id "),
        _schema_id(),
        F.lit(f" was no version of {schemas.subject} when the query started"),
    )
    unread = F.concat(F.lit("the value cannot be read with schema id "), _schema_id())
    is_unread = parsed.getField(_READ).isNull()
    if topic.format != "avro":
        is_unread |= parsed.getField(_CORRUPT).isNotNull()
    return [
        (F.col("value").isNull(), F.lit("the value is null")),
        (~_is_framed(), F.lit("the value does not begin with a zero byte and a schema id")),
        (~is_known, unknown),
        (is_unread, unread),
    ]


# Writing


def encoded(topic: LogTopic, row: StructType, whole: Column, as_json: Column) -> Column:
    """The bytes of a row, under a schema that is registered now. Raises PipelineError if it is refused."""
    schema_type = _TYPES[topic.format]
    try:
        text = topic.schema or types.to_schema(schema_type, row, topic.name)
        record = types.record_name(schema_type, text)
    except (InvalidSchema, ValueError) as error:
        raise PipelineError(f"{topic.name}: {error}") from None
    subject = topic.subject or _subject(topic, record)
    client = RegistryClient(registry_url(topic))
    try:
        schema_id = client.register(subject, schema_type, text)
    except RegistryError as error:
        raise PipelineError(f"{topic.name}: the registry refuses the schema: {error.message}") from None
    finally:
        client.close()
    header = F.lit(bytearray(bytes([MAGIC]) + schema_id.to_bytes(4, "big")))
    return F.concat(header, _payload(topic.format, text, whole, as_json))


def _payload(name: str, text: str, whole: Column, as_json: Column) -> Column:
    if name == "avro":
        from pyspark.sql.avro.functions import to_avro

        return to_avro(whole, text)
    if name == "json_schema":
        return as_json.cast("binary")

    def write(value: str | None) -> bytes | None:
        from millrace.registry.codecs import codec

        return None if value is None else codec(PROTOBUF, text).encode(json.loads(value))

    return F.udf(write, BinaryType())(as_json)
