"""Columns to records, entirely in Spark expressions: no Python runs per record."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics import registered
from millrace.pipelines.topics.columns import column, require_distinct, same_name, type_name
from millrace.pipelines.topics.declaration import REGISTERED, LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's default drops microseconds and writes times in the zone of the machine it runs on.
JSON_WRITING = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
    "timeZone": "UTC",
}
HEADERS = "array<struct<key:string,value:binary>>"


def encode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Turn the columns of a pipeline into those that sinks write: topic, value, and what else is declared."""
    if topic.pattern or "," in topic.name:
        raise PipelineError(f"{topic.name}: an output is one topic; name the topic to write to")
    require_distinct(frame.columns, f"the output for {topic.name}", "rename or drop one")
    _require_one_role_per_column(topic)
    columns = [F.lit(topic.name).alias("topic"), _value(frame, topic).alias("value")]
    if topic.key is not None:
        columns.append(_key(frame, topic).alias("key"))
    if topic.headers is not None:
        columns.append(_headers(frame, topic).alias("headers"))
    if topic.partition is not None:
        columns.append(_partition(frame, topic).alias("partition"))
    return frame.select(*columns)


def _value(frame: DataFrame, topic: LogTopic) -> Column:
    elsewhere = [name for name in (topic.headers, topic.partition) if name is not None]
    fields = [field for field in frame.schema.fields if not same_name(field.name, elsewhere)]
    if topic.format == "json" or topic.format in REGISTERED:
        return _object_value(fields, topic)
    field = _output_field(frame, topic, "value", f"{topic.format} value")
    wanted: tuple[type[DataType], ...] = (StringType,) if topic.format == "text" else (BinaryType, StringType)
    if not isinstance(field.dataType, wanted):
        raise PipelineError(
            f"{topic.name}: the value column is {type_name(field)}; make it {wanted[0]().simpleString()},"
            " or declare the output with log.json"
        )
    extra = [other.name for other in fields if not same_name(other.name, ["value", topic.key or "value"])]
    if extra:
        raise PipelineError(
            f"{topic.name}: a {topic.format} record has no place for {', '.join(extra)};"
            " drop such columns, or declare the output with log.json"
        )
    return column(field.name)


def _object_value(fields: list[StructField], topic: LogTopic) -> Column:
    if not fields:
        raise PipelineError(f"{topic.name}: no column is left for the value; select at least one")
    whole = F.struct(*(column(field.name) for field in fields))
    if topic.format == "json":
        value = F.to_json(whole, JSON_WRITING)
    else:
        value = registered.encoded(topic, StructType(fields), whole, F.to_json(whole, JSON_WRITING))
    others = [
        column(field.name).isNotNull() for field in fields if not same_name(field.name, [topic.key or ""])
    ]
    if topic.key is None or not others:
        return value
    # A row with nothing but its key deletes the key, as in a table.
    return F.when(reduce(or_, others), value)


def _key(frame: DataFrame, topic: LogTopic) -> Column:
    field = _output_field(frame, topic, topic.key or "", "key")
    key = column(field.name)
    if isinstance(field.dataType, (StringType, BinaryType)):
        return key
    if isinstance(field.dataType, (StructType, ArrayType, MapType, VariantType)):
        return F.to_json(key, JSON_WRITING)
    if isinstance(field.dataType, (TimestampType, TimestampNTZType)):
        # A cast would use the zone of the machine it runs on, and so pick another partition there.
        return F.when(key.isNotNull(), F.to_csv(F.struct(key), JSON_WRITING))
    return key.cast("string")


def _headers(frame: DataFrame, topic: LogTopic) -> Column:
    field = _output_field(frame, topic, topic.headers or "", "headers")
    headers, data_type = column(field.name), field.dataType
    if isinstance(data_type, MapType) and _are_header_types(data_type.keyType, data_type.valueType):
        return F.map_entries(headers).cast(HEADERS)
    if isinstance(data_type, ArrayType) and isinstance(data_type.elementType, StructType):
        pair = data_type.elementType
        if pair.names == ["key", "value"] and _are_header_types(*(part.dataType for part in pair.fields)):
            return headers.cast(HEADERS)
    raise PipelineError(
        f"{topic.name}: the headers column {field.name} is {type_name(field)}; make it a map of strings,"
        " such as map('trace', id), or an array of structs of key and value"
    )


def _are_header_types(key: DataType, value: DataType) -> bool:
    return isinstance(key, StringType) and isinstance(value, (StringType, BinaryType))


def _partition(frame: DataFrame, topic: LogTopic) -> Column:
    field = _output_field(frame, topic, topic.partition or "", "partition")
    if not isinstance(field.dataType, IntegralType):
        raise PipelineError(
            f"{topic.name}: the partition column {field.name} is {type_name(field)};"
            f" make it a number: cast({field.name} as int)"
        )
    return column(field.name).cast("int")


def _output_field(frame: DataFrame, topic: LogTopic, name: str, role: str) -> StructField:
    found = same_name(name, frame.columns)
    if found is None:
        raise PipelineError(
            f"{topic.name}: there is no column {name} for the {role}, only {', '.join(frame.columns)};"
            " select one under that name, or declare another"
        )
    return frame.schema[found]


def _require_one_role_per_column(topic: LogTopic) -> None:
    value = None if topic.format == "json" or topic.format in REGISTERED else "value"
    roles = {"headers": topic.headers, "partition": topic.partition, "key": topic.key, "value": value}
    given = [(role, name) for role, name in roles.items() if name is not None]
    for number, (role, name) in enumerate(given):
        for other_role, other_name in given[number + 1 :]:
            # The key may also be the value, and may also choose the partition.
            may_share = role == "key" or (role, other_role) == ("partition", "key")
            if not may_share and same_name(name, [other_name]):
                raise PipelineError(
                    f"{topic.name}: {name} is declared as {role} and as {other_role};"
                    " give each its own column"
                )
