"""Records to columns, entirely in Spark expressions: no Python runs per record.

Python in the plan would rule out real-time mode. Malformed records are found in the same pass that parses.
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
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType, TimestampType

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics import registered
from millrace.pipelines.topics.columns import require_distinct, same_name, type_name
from millrace.pipelines.topics.declaration import REGISTERED, LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "reason"
"""The column that `malformed` adds."""

_PARSED = "__parsed"
_CORRUPT = "__corrupt"
_END = "__end"
_EXCERPT = 100

_READ = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


@dataclass(frozen=True, slots=True)
class _Rule:
    """One way in which a record is malformed: the condition, and the reason to report."""

    broken: Column
    reason: Column


def decode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Turn the columns of Spark's Kafka source into the columns that the topic declares.

    Malformed records fail the query or are dropped, as declared. Records for a dead-letter topic are dropped
    here; `malformed` finds them.
    """
    columns = _value_columns(topic) + [_metadata_column(name, topic) for name in topic.metadata]
    return _accepted(frame, topic).select(*columns)


def malformed(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Select the malformed records of Spark's Kafka source and add a column with the reason."""
    rules = _rules(topic)
    if not rules:
        return frame.withColumn(REASON, F.lit("")).filter(F.lit(False))
    broken = _parsed(frame, topic).filter(_broken(rules))
    return broken.withColumn(REASON, _reason(rules)).select(*frame.columns, REASON)


def newest(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Select the rows of a table: the newest value of every key whose newest record is not a deletion."""
    assert topic.key is not None
    row = F.when(F.col("value").isNotNull(), F.struct(*_value_columns(topic)))
    rows = (
        _accepted(frame, topic)
        .groupBy("key")
        .agg(F.max_by(row, F.col("offset")).alias(_PARSED))
        .filter(F.col(_PARSED).isNotNull())
    )
    schema = _schema(topic)
    key = same_name(topic.key, schema.names)
    key_type = schema[key].dataType if key else StringType()
    others = [F.col(_PARSED).getField(name).alias(name) for name in schema.names if name != key]
    return rows.select(F.col("key").cast("string").cast(key_type).alias(topic.key), *others)


def failure(text: str) -> str | None:
    """Extract the line for the user from the error of a query that failed on a malformed record."""
    found = re.search(
        r"cannot read topic \S+, partition \d.*?malformed=log\.dead_letters\(.*?\)", text, re.DOTALL
    )
    return found[0] if found else None


def _accepted(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Parse records and keep the well-formed ones; with malformed="fail" the others fail the query."""
    rules = _rules(topic)
    parsed = _parsed(frame, topic)
    if not rules:
        return parsed
    if topic.malformed != "fail":
        return parsed.filter(~_broken(rules))
    error = F.concat(
        *(F.lit("cannot read topic "), F.col("topic"), F.lit(", partition "), F.col("partition")),
        *(F.lit(", offset "), F.col("offset"), F.lit(": "), _reason(rules)),
        F.lit("; correct the producer or the schema, or skip such records: malformed='drop'"),
        *(F.lit(" or malformed=log.dead_letters('"), F.col("topic"), F.lit(".dead-letters')")),
    )
    return parsed.filter(F.when(_broken(rules), F.raise_error(error)).otherwise(F.lit(True)))


def _parsed(frame: DataFrame, topic: LogTopic) -> DataFrame:
    if topic.format in REGISTERED:
        return frame.withColumn(_PARSED, registered.parsed(topic))
    if topic.format != "json":
        return frame
    fields = _schema(topic).fields
    inner = StructType([StructField(field.name, field.dataType) for field in fields])
    whole = StructType().add(_PARSED, inner).add(_END, "boolean").add(_CORRUPT, "string")
    # The condition is always true, but Spark takes it for nondeterministic. So Spark does not push the next
    # filter below this column, where it would parse each value once per rule.
    once = F.when(F.spark_partition_id() >= 0, _wrapped())
    return frame.withColumn(_PARSED, F.from_json(once, whole, _READ))


def _wrapped() -> Column:
    """The value inside another object. Spark ignores text after a JSON value, but not inside an object."""
    return F.concat(F.lit(f'{{"{_PARSED}":'), _text("value"), F.lit(f',"{_END}":true}}'))


# Rules


def _rules(topic: LogTopic) -> list[_Rule]:
    rules = _key_rules(topic)
    if topic.format == "text":
        rules.append(_Rule(_not_utf8("value"), F.lit("the value is not UTF-8")))
    if topic.format == "json":
        rules += _json_rules(topic)
    if topic.format in REGISTERED:
        rules += [_Rule(broken, reason) for broken, reason in registered.rules(topic, F.col(_PARSED))]
    return rules


def _key_rules(topic: LogTopic) -> list[_Rule]:
    if topic.format == "bytes":
        return []
    rules = []
    if topic.table:
        rules.append(_Rule(F.col("key").isNull(), F.lit("the record of a table has no key")))
        schema = _schema(topic)
        name = same_name(topic.key or "", schema.names)
        key_type = schema[name].dataType if name else StringType()
        if not isinstance(key_type, StringType):
            unfit = F.col("key").isNotNull() & _text("key").try_cast(key_type).isNull()
            rules.append(_Rule(unfit, _unfit("the key", key_type, _text("key"))))
    if topic.table or "key" in topic.metadata:
        rules.append(_Rule(_not_utf8("key"), F.lit("the key is not UTF-8")))
    return rules


def _json_rules(topic: LogTopic) -> list[_Rule]:
    schema = _schema(topic)
    null, parsed = F.col("value").isNull(), F.col(_PARSED)
    # In a table a null value deletes its key.
    rules = [] if topic.table else [_Rule(null, F.lit("the value is null"))]
    unread = parsed[_CORRUPT].isNotNull() | parsed[_PARSED].isNull() | parsed[_END].isNull()
    rules.append(_Rule(_not_utf8("value"), F.lit("the value is not UTF-8")))
    rules.append(_Rule(~null & unread, _json_reason(schema)))
    for field in schema.fields:
        value = parsed[_PARSED].getField(field.name)
        if not field.nullable:
            rules.append(_Rule(~null & value.isNull(), F.lit(f"{field.name} is missing")))
        if isinstance(field.dataType, TimestampType):
            too_late = F.lit("10000-01-01T00:00:00Z").cast("timestamp")
            reason = (
                f"{field.name} is after the year 9999 (a number is in seconds; for milliseconds declare"
                f" `{field.name} bigint` and use timestamp_millis({field.name}))"
            )
            rules.append(_Rule(value >= too_late, F.lit(reason)))
    return rules


def _broken(rules: list[_Rule]) -> Column:
    return F.coalesce(reduce(or_, (rule.broken for rule in rules)), F.lit(False))


def _reason(rules: list[_Rule]) -> Column:
    cases = F.when(rules[0].broken, rules[0].reason)
    return reduce(lambda found, rule: found.when(rule.broken, rule.reason), rules[1:], cases)


# Reasons


def _json_reason(schema: StructType) -> Column:
    """The reason why Spark's parser refused a text. Spark evaluates it for refused texts only."""
    text = F.trim(_text("value"))
    excerpt = _excerpt(text)
    return (
        F.when(text == "", F.lit("the value is empty"))
        .when(F.try_parse_json(_wrapped()).isNull(), F.concat(F.lit("the value is not JSON: "), excerpt))
        .when(~text.startswith("{"), F.concat(F.lit("the value is not a JSON object: "), excerpt))
        .otherwise(
            F.coalesce(
                *_field_reasons(schema, text, F.col(_PARSED)[_PARSED], ""),
                F.concat(F.lit("the value does not fit the schema: "), excerpt),
            )
        )
    )


def _field_reasons(schema: StructType, text: Column, parsed: Column, path: str) -> Iterable[Column]:
    """One reason per struct, null unless the text has a field that the parser refused.

    One reason per field would be simpler, but with many fields the generated code is too long for Java.
    """
    strings = MapType(StringType(), StringType())
    given, accepted = F.from_json(text, strings), F.from_json(F.to_json(parsed), strings)
    names = F.array(*(F.lit(field.name) for field in schema.fields))
    refused = F.get(F.filter(names, lambda name: given[name].isNotNull() & accepted[name].isNull()), F.lit(0))
    types = [part for field in schema.fields for part in (F.lit(field.name), F.lit(type_name(field)))]
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


def _unfit(name: str, data_type: DataType, given: Column) -> Column:
    return F.concat(F.lit(f"{name} is not {data_type.simpleString()}: "), _excerpt(given))


def _excerpt(text: Column) -> Column:
    return F.regexp_replace(F.substring(text, 1, _EXCERPT), r"\s+", " ")


# Columns


def _value_columns(topic: LogTopic) -> list[Column]:
    if topic.format == "bytes":
        return [F.col("value")]
    if topic.format == "text":
        return [_text("value").alias("value")]
    schema = registered.columns(topic) if topic.format in REGISTERED else _schema(topic)
    names = [*schema.names, *topic.metadata]
    require_distinct(names, f"{topic.name}: its schema and metadata together", "leave one out")
    if topic.format in REGISTERED:
        return [F.col(_PARSED).getField(name).alias(name) for name in schema.names]
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
    require_distinct(schema.names, f"{topic.name}: the schema", "rename or drop one")
    return schema


def _text(name: str) -> Column:
    return F.col(name).cast("string")


def _not_utf8(name: str) -> Column:
    return ~F.is_valid_utf8(_text(name))
