"""Records to columns and back, all in Spark's own expressions: no Python runs per record.

That keeps real-time mode possible, and what is malformed is found in the same pass that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
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
from millrace.pipelines.log import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "reason"
"""The column that `malformed` adds."""

_PARSED = "__parsed"
_CORRUPT = "__corrupt"
_END = "__end"
_EXCERPT = 100

_READ = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
# Spark's own way drops microseconds, and writes the zone of whichever machine it runs on.
JSON_WRITING = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
    "timeZone": "UTC",
}
HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One way for a record to be malformed: when it is, and what to say then."""

    broken: Column
    reason: Column


def decode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """The columns that the topic's declaration says, from those of Spark's Kafka source.

    Malformed records fail the query or are left out, as declared; those for a dead-letter topic are left out,
    and `malformed` finds them.
    """
    columns = _value_columns(topic) + [_metadata_column(name, topic) for name in topic.metadata]
    return _accepted(frame, topic).select(*columns)


def malformed(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Only the malformed of the records from Spark's Kafka source, with the reason in a column."""
    rules = _rules(topic)
    if not rules:
        return frame.withColumn(REASON, F.lit("")).filter(F.lit(False))
    found = _parsed(frame, topic).filter(_broken(rules))
    return found.withColumn(REASON, _reason(rules)).select(*frame.columns, REASON)


def newest(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """A table's rows: of every key the newest value, without keys whose newest record deletes them."""
    assert topic.key is not None
    row = F.when(F.col("value").isNotNull(), F.struct(*_value_columns(topic)))
    found = (
        _accepted(frame, topic)
        .groupBy("key")
        .agg(F.max_by(row, F.col("offset")).alias(_PARSED))
        .filter(F.col(_PARSED).isNotNull())
    )
    schema = _schema(topic)
    key = _same(topic.key, schema.names)
    key_type = schema[key].dataType if key else StringType()
    others = [_field(name) for name in schema.names if name != key]
    return found.select(F.col("key").cast("string").cast(key_type).alias(topic.key), *others)


def encode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """What the sinks write, from a pipeline's columns: topic, value, and what else is declared."""
    if topic.pattern or "," in topic.name:
        raise PipelineError(f"{topic.name}: an output is one topic; name the topic to write to")
    _require_distinct(frame.columns, f"the output for {topic.name}", "rename or drop one")
    _require_roles_apart(topic)
    columns = [F.lit(topic.name).alias("topic"), _encoded_value(frame, topic).alias("value")]
    if topic.key is not None:
        columns.append(_encoded_key(frame, topic).alias("key"))
    if topic.headers is not None:
        columns.append(_encoded_headers(frame, topic).alias("headers"))
    if topic.partition is not None:
        field = _output_field(frame, topic, topic.partition, "partition")
        if not isinstance(field.dataType, IntegralType):
            raise PipelineError(
                f"{topic.name}: the partition column {field.name} is {_type(field)};"
                f" make it a number: cast({field.name} as int)"
            )
        columns.append(_named(field.name).cast("int").alias("partition"))
    return frame.select(*columns)


def failure(text: str) -> str | None:
    """Of the error of a query that failed at a malformed record, the line that is for the user."""
    found = re.search(
        r"cannot read topic \S+, partition \d.*?malformed=log\.dead_letters\(.*?\)", text, re.DOTALL
    )
    return found[0] if found else None


# Reading


def _accepted(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """The records that are not malformed, parsed; with malformed="fail" the others end the query."""
    rules = _rules(topic)
    parsed = _parsed(frame, topic)
    if not rules:
        return parsed
    if topic.malformed != "fail":
        return parsed.filter(~_broken(rules))
    error = F.concat(
        *(F.lit("cannot read topic "), F.col("topic"), F.lit(", partition "), F.col("partition")),
        *(F.lit(", offset "), F.col("offset"), F.lit(": "), _reason(rules)),
        F.lit("; correct the producer or the schema, or go on without such records: malformed='drop'"),
        *(F.lit(" or malformed=log.dead_letters('"), F.col("topic"), F.lit(".dead-letters')")),
    )
    return parsed.filter(F.when(_broken(rules), F.raise_error(error)).otherwise(F.lit(True)))


def _parsed(frame: DataFrame, topic: LogTopic) -> DataFrame:
    if topic.format != "json":
        return frame
    fields = _schema(topic).fields
    inner = StructType([StructField(field.name, field.dataType) for field in fields])
    whole = StructType().add(_PARSED, inner).add(_END, "boolean").add(_CORRUPT, "string")
    # Always true. But it looks as if it could change, so Spark does not move the filter that comes next below
    # this column, where it would parse each value once for every rule.
    once = F.when(F.spark_partition_id() >= 0, _wrapped())
    return frame.withColumn(_PARSED, F.from_json(once, whole, _READ))


def _wrapped() -> Column:
    """The value inside another object: Spark ignores what comes after a JSON value, but not in there."""
    return F.concat(F.lit(f'{{"{_PARSED}":'), _text("value"), F.lit(f',"{_END}":true}}'))


def _rules(topic: LogTopic) -> list[_Rule]:
    rules = _key_rules(topic)
    if topic.format == "text":
        rules.append(_Rule(_not_utf8("value"), F.lit("the value is not UTF-8")))
    if topic.format == "json":
        rules += _json_rules(topic)
    return rules


def _key_rules(topic: LogTopic) -> list[_Rule]:
    if topic.format == "bytes":
        return []
    rules = []
    if topic.table:
        rules.append(_Rule(F.col("key").isNull(), F.lit("the record of a table has no key")))
        schema = _schema(topic)
        name = _same(topic.key or "", schema.names)
        kind = schema[name].dataType if name else StringType()
        if not isinstance(kind, StringType):
            unfit = F.col("key").isNotNull() & _text("key").try_cast(kind).isNull()
            rules.append(_Rule(unfit, _unfit("the key", kind, _text("key"))))
    if topic.table or "key" in topic.metadata:
        rules.append(_Rule(_not_utf8("key"), F.lit("the key is not UTF-8")))
    return rules


def _json_rules(topic: LogTopic) -> list[_Rule]:
    schema = _schema(topic)
    null, parsed = F.col("value").isNull(), F.col(_PARSED)
    # A table's null value deletes its key.
    rules = [] if topic.table else [_Rule(null, F.lit("the value is null"))]
    unread = parsed[_CORRUPT].isNotNull() | parsed[_PARSED].isNull() | parsed[_END].isNull()
    rules.append(_Rule(_not_utf8("value"), F.lit("the value is not UTF-8")))
    rules.append(_Rule(~null & unread, _json_reason(schema)))
    for field in schema.fields:
        value = parsed[_PARSED].getField(field.name)
        if not field.nullable:
            rules.append(_Rule(~null & value.isNull(), F.lit(f"{field.name} is missing")))
        if isinstance(field.dataType, TimestampType):
            late = F.lit("10000-01-01T00:00:00Z").cast("timestamp")
            told = f"{field.name} is after the year 9999 (a number is in seconds; for milliseconds declare"
            told += f" `{field.name} bigint` and use timestamp_millis({field.name}))"
            rules.append(_Rule(value >= late, F.lit(told)))
    return rules


def _json_reason(schema: StructType) -> Column:
    """Why Spark's parser did not take a text; worked out only for those it did not take."""
    text = F.trim(_text("value"))
    quoted = _excerpt(text)
    return (
        F.when(text == "", F.lit("the value is empty"))
        .when(F.try_parse_json(_wrapped()).isNull(), F.concat(F.lit("the value is not JSON: "), quoted))
        .when(~text.startswith("{"), F.concat(F.lit("the value is not a JSON object: "), quoted))
        .otherwise(
            F.coalesce(
                *_field_reasons(schema, text, F.col(_PARSED)[_PARSED], ""),
                F.concat(F.lit("the value does not fit the schema: "), quoted),
            )
        )
    )


def _field_reasons(schema: StructType, text: Column, parsed: Column, path: str) -> Iterable[Column]:
    """Reasons that are null unless the text has a field that the parser did not take; one for each struct.

    One for each field would be simpler, but too much code for Java's compiler where fields are many.
    """
    kind = MapType(StringType(), StringType())
    given, taken = F.from_json(text, kind), F.from_json(F.to_json(parsed), kind)
    names = F.array(*(F.lit(field.name) for field in schema.fields))
    refused = F.get(F.filter(names, lambda name: given[name].isNotNull() & taken[name].isNull()), F.lit(0))
    types = [part for field in schema.fields for part in (F.lit(field.name), F.lit(_type(field)))]
    yield F.concat(
        F.lit(path),
        refused,
        F.lit(" is not "),
        F.create_map(*types)[refused],
        F.lit(": "),
        _excerpt(given[refused]),
    )
    for field in schema.fields:
        if isinstance(field.dataType, StructType):
            name = field.name
            yield from _field_reasons(field.dataType, given[name], parsed.getField(name), f"{path}{name}.")


def _value_columns(topic: LogTopic) -> list[Column]:
    if topic.format == "bytes":
        return [F.col("value")]
    if topic.format == "text":
        return [_text("value").alias("value")]
    schema = _schema(topic)
    names = [*schema.names, *topic.metadata]
    _require_distinct(names, f"{topic.name}: its schema and metadata together", "leave one out")
    return [F.col(_PARSED)[_PARSED].getField(name).alias(name) for name in schema.names]


def _metadata_column(name: str, topic: LogTopic) -> Column:
    return _text("key").alias("key") if name == "key" and topic.format != "bytes" else F.col(name)


def _schema(topic: LogTopic) -> StructType:
    if topic.schema is None:
        raise PipelineError(f'{topic.name} needs a schema to be read: log.json("{topic.name}", "a string")')
    try:
        schema = StructType.fromDDL(topic.schema)
    except PySparkException as error:
        problem = re.sub(r"^\[[^]]*\]\s*", "", " ".join(str(error).split("==")[0].split()))
        raise PipelineError(
            f'{topic.name}: Spark cannot read the schema "{topic.schema}" ({problem});'
            ' write it as "name type, name type", such as "user string, at timestamp"'
        ) from error
    if not isinstance(schema, StructType):
        raise PipelineError(f'{topic.name}: the schema "{topic.schema}" has no columns; write "name type"')
    _require_distinct(schema.names, f"{topic.name}: the schema", "rename or drop one")
    return schema


def _text(column: str) -> Column:
    return F.col(column).cast("string")


def _not_utf8(column: str) -> Column:
    return ~F.is_valid_utf8(_text(column))


def _excerpt(text: Column) -> Column:
    return F.regexp_replace(F.substring(text, 1, _EXCERPT), r"\s+", " ")


def _unfit(name: str, kind: DataType, given: Column) -> Column:
    return F.concat(F.lit(f"{name} is not {kind.simpleString()}: "), _excerpt(given))


def _broken(rules: list[_Rule]) -> Column:
    return F.coalesce(reduce(or_, (rule.broken for rule in rules)), F.lit(False))


def _reason(rules: list[_Rule]) -> Column:
    cases = F.when(rules[0].broken, rules[0].reason)
    return reduce(lambda found, rule: found.when(rule.broken, rule.reason), rules[1:], cases)


# Writing


def _encoded_value(frame: DataFrame, topic: LogTopic) -> Column:
    carried = [name for name in (topic.headers, topic.partition) if name is not None]
    left = [field for field in frame.schema.fields if not _same(field.name, carried)]
    if topic.format == "json":
        return _json_value(left, topic)
    field = _output_field(frame, topic, "value", f"{topic.format} value")
    wanted: tuple[type[DataType], ...] = (StringType,) if topic.format == "text" else (BinaryType, StringType)
    if not isinstance(field.dataType, wanted):
        raise PipelineError(
            f"{topic.name}: the value column is {_type(field)}; make it {wanted[0]().simpleString()},"
            " or declare the output with log.json"
        )
    extra = [one.name for one in left if not _same(one.name, ["value", topic.key or "value"])]
    if extra:
        raise PipelineError(
            f"{topic.name}: a {topic.format} record has no place for {', '.join(extra)};"
            " drop such columns, or declare the output with log.json"
        )
    return _named(field.name)


def _json_value(fields: list[StructField], topic: LogTopic) -> Column:
    if not fields:
        raise PipelineError(f"{topic.name}: no column is left for the value; select at least one")
    value = F.to_json(F.struct(*(_named(field.name) for field in fields)), JSON_WRITING)
    others = [_named(field.name).isNotNull() for field in fields if not _same(field.name, [topic.key or ""])]
    if topic.key is None or not others:
        return value
    # Nothing but a key deletes it, as in a table.
    return F.when(reduce(or_, others), value)


def _encoded_key(frame: DataFrame, topic: LogTopic) -> Column:
    field = _output_field(frame, topic, topic.key or "", "key")
    column = _named(field.name)
    if isinstance(field.dataType, (StringType, BinaryType)):
        return column
    if isinstance(field.dataType, (StructType, ArrayType, MapType, VariantType)):
        return F.to_json(column, JSON_WRITING)
    if isinstance(field.dataType, (TimestampType, TimestampNTZType)):
        # A cast would write the zone of whichever machine it runs on, and so choose another partition there.
        return F.when(column.isNotNull(), F.to_csv(F.struct(column), JSON_WRITING))
    return column.cast("string")


def _encoded_headers(frame: DataFrame, topic: LogTopic) -> Column:
    field = _output_field(frame, topic, topic.headers or "", "headers")
    column, kind = _named(field.name), field.dataType
    if isinstance(kind, MapType) and _texts(kind.keyType, kind.valueType):
        return F.map_entries(column).cast(HEADERS)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        names, kinds = kind.elementType.names, [one.dataType for one in kind.elementType.fields]
        if names == ["key", "value"] and _texts(*kinds):
            return column.cast(HEADERS)
    raise PipelineError(
        f"{topic.name}: the headers column {field.name} is {_type(field)}; make it a map of strings,"
        " such as map('trace', id), or an array of structs of key and value"
    )


def _texts(key: DataType, value: DataType) -> bool:
    return isinstance(key, StringType) and isinstance(value, (StringType, BinaryType))


def _output_field(frame: DataFrame, topic: LogTopic, name: str, role: str) -> StructField:
    found = _same(name, frame.columns)
    if found is None:
        raise PipelineError(
            f"{topic.name}: there is no column {name} for the {role}, only {', '.join(frame.columns)};"
            f" select one under that name, or declare another"
        )
    return frame.schema[found]


def _require_roles_apart(topic: LogTopic) -> None:
    value = None if topic.format == "json" else "value"
    columns = {"headers": topic.headers, "partition": topic.partition, "key": topic.key, "value": value}
    given = [(role, name) for role, name in columns.items() if name is not None]
    for number, (role, name) in enumerate(given):
        for other, another in given[number + 1 :]:
            # The key may be the value as well, and choose the partition.
            if role != "key" and (role, other) != ("partition", "key") and _same(name, [another]):
                raise PipelineError(
                    f"{topic.name}: {name} is declared as {role} and as {other}; give each its own column"
                )


def _same(name: str, names: Iterable[str]) -> str | None:
    """The one of the names that Spark takes for this one: it does not tell upper from lower case."""
    return next((one for one in names if one.casefold() == name.casefold()), None)


def _require_distinct(names: list[str], where: str, remedy: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise PipelineError(f"{where} has the column {name} twice; {remedy}")
        seen.add(name.casefold())


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _field(name: str) -> Column:
    return F.col(_PARSED).getField(name).alias(name)


def _type(field: StructField) -> str:
    return field.dataType.simpleString()
