"""A topic of the log as a DataFrame: as a stream, as a batch over a range, or as a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from millrace.pipelines import codecs, offsets
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import DeadLetters, GroupOffsets, LogTopic, Start
from millrace.pipelines.spark_session import CONSUMER_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Exact: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""

# What Spark takes as an offset, and makes the first or the next one of the partition.
EARLIEST, LATEST = -2, -1

_DATA_LOSS = re.compile(r"[^.\n:]*(KAFKA_DATA_LOSS|may have been lost|OffsetOutOfRange)[^\n]*")


@dataclass(frozen=True, slots=True)
class Range:
    """What of a topic a batch reads: from `start` up to, and without, `end`."""

    start: Start = "earliest"
    end: Start = "latest"


def stream(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Exact | None = None,
    limit: int | None = None,
) -> DataFrame:
    """A topic's records as they come, in the columns that its declaration says; of a table, its newest rows.

    `start` goes before the declaration's own, `limit` is how many records a batch takes at most.
    """
    if topic.table:
        return table(spark, topic, bootstrap)
    return codecs.decode(records(spark, topic, bootstrap, start=start, limit=limit), topic)


def batch(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Start | Exact | None = None,
    end: Start | Exact | None = None,
) -> DataFrame:
    """A range of a topic's records, in the same columns as its stream; of a table, its rows as of `end`."""
    if topic.table:
        return table(spark, topic, bootstrap, end=end)
    return codecs.decode(stored_records(spark, topic, bootstrap, start=start, end=end), topic)


def table(
    spark: SparkSession, topic: LogTopic, bootstrap: str, *, end: Start | Exact | None = None
) -> DataFrame:
    """The newest row of every key, without deleted ones; Spark reads it anew for every batch of a stream."""
    found = stored_records(spark, topic, bootstrap, start="earliest", end=end)
    return codecs.newest(found, topic)


def records(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Start | Exact | None = None,
    limit: int | None = None,
) -> DataFrame:
    """A stream in the columns of Spark's Kafka source, nothing decoded."""
    _require_topics(topic, bootstrap)
    options = source_options(topic, bootstrap) | _starting(topic, bootstrap, start or topic.start)
    if limit is not None:
        options["maxOffsetsPerTrigger"] = str(limit)
    return spark.readStream.format("kafka").options(**{**options, **topic.options}).load()


def stored_records(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Start | Exact | None = None,
    end: Start | Exact | None = None,
) -> DataFrame:
    """A range of records in the columns of Spark's Kafka source, nothing decoded."""
    _require_topics(topic, bootstrap)
    # A batch from the latest record on would be none.
    start = start or ("earliest" if topic.start == "latest" else topic.start)
    _require_order(topic, start, end)
    _require_kept(topic, bootstrap, start)
    options = source_options(topic, bootstrap)
    options |= _starting(topic, bootstrap, start) | _ending(topic, bootstrap, end or "latest")
    return spark.read.format("kafka").options(**{**options, **topic.options}).load()


def source_options(topic: LogTopic, bootstrap: str) -> dict[str, str]:
    """What Spark's Kafka source is told about a topic, save where to begin and to end."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribePattern" if topic.pattern else "subscribe": topic.name,
        # Without it a pipeline would read what another one's transaction has taken back.
        "kafka.isolation.level": "read_committed",
        **CONSUMER_OPTIONS,
    }
    if "headers" in topic.metadata or isinstance(topic.malformed, DeadLetters):
        options["includeHeaders"] = "true"
    return {**options, **topic.options}


def topics(topic: LogTopic, bootstrap: str) -> list[str]:
    """The names of the topics that a declaration means; several are separated by commas."""
    if topic.pattern:
        return offsets.matching(bootstrap, topic.name)
    return [name.strip() for name in topic.name.split(",")]


def explain(error: BaseException) -> PipelineError | None:
    """What to tell the user about a query that failed on its input, if it did."""
    text = str(error)
    if malformed := codecs.failure(text):
        return PipelineError(malformed)
    if lost := _DATA_LOSS.search(text):
        return PipelineError(
            f"records were deleted before they were read ({_one_line(lost[0])}); keep them longer"
            " (retention.ms), or declare options={'failOnDataLoss': 'false'} to go on with what is left"
        )
    return None


def _starting(topic: LogTopic, bootstrap: str, start: Start | Exact) -> dict[str, str]:
    match start:
        case "earliest" | "latest":
            return {"startingOffsets": str(start)}
        case datetime():
            return {
                "startingTimestamp": _milliseconds(start),
                # Partitions without a record that new begin at their end.
                "startingOffsetsByTimestampStrategy": "latest",
            }
        case _:
            return {"startingOffsets": _whole(topic, bootstrap, start, EARLIEST)}


def _ending(topic: LogTopic, bootstrap: str, end: Start | Exact) -> dict[str, str]:
    match end:
        case "latest":
            return {"endingOffsets": "latest"}
        case "earliest":
            raise PipelineError(
                f"{topic.name}: a range that ends at the earliest record is empty; end it later"
            )
        case datetime():
            return {"endingTimestamp": _milliseconds(end)}
        case _:
            return {"endingOffsets": _whole(topic, bootstrap, end, LATEST)}


def _whole(
    topic: LogTopic, bootstrap: str, given: Mapping[int, int] | Exact | GroupOffsets, rest: int
) -> str:
    """Offsets as Spark wants them, which is for every partition; those not given are `rest`."""
    names = topics(topic, bootstrap)
    if isinstance(given, GroupOffsets):
        by_topic = _group_offsets(bootstrap, given.group, names, rest)
    else:
        by_topic = _by_topic(topic, given)
    ends = offsets.end_offsets(bootstrap, names)
    for name, by_partition in by_topic.items():
        if name not in ends:
            raise PipelineError(
                f"{topic.name}: there are offsets for {name}, which is not read; leave them out"
            )
        for partition, offset in by_partition.items():
            _require_offset(name, partition, offset, ends[name])
    whole = {
        name: {str(number): by_topic.get(name, {}).get(number, rest) for number in by_partition}
        for name, by_partition in ends.items()
    }
    return json.dumps(whole)


def _group_offsets(bootstrap: str, group: str, names: list[str], rest: int) -> dict[str, dict[int, int]]:
    """Where a group stands, which is at the oldest record where it has committed nothing."""
    committed = offsets.group_offsets(bootstrap, group, names)
    if rest == EARLIEST:
        return committed
    # Spark takes no "earliest" as an end.
    oldest = offsets.start_offsets(bootstrap, names)
    return {name: {**oldest[name], **committed.get(name, {})} for name in names}


def _require_offset(name: str, partition: int, offset: int, ends: Mapping[int, int]) -> None:
    if partition not in ends:
        numbers = ", ".join(map(str, sorted(ends)))
        raise PipelineError(f"{name} has no partition {partition}; give offsets for {numbers}")
    if offset > ends[partition]:
        raise PipelineError(
            f"{name}: partition {partition} ends at offset {ends[partition]}, before {offset};"
            " give an offset up to there, or 'latest'"
        )


def _require_kept(topic: LogTopic, bootstrap: str, start: Start | Exact) -> None:
    """Refuse to begin a batch before the oldest record; a stream may have a checkpoint, and Spark looks."""
    if isinstance(start, Mapping) and topic.options.get("failOnDataLoss", "true").lower() == "true":
        given = _by_topic(topic, start)
        for name, first in offsets.start_offsets(bootstrap, given).items():
            for partition, offset in given[name].items():
                if 0 <= offset < first.get(partition, 0):
                    raise PipelineError(
                        f"{name}: offset {offset} of partition {partition} is deleted, the oldest is"
                        f" {first[partition]}; start there, or declare options={{'failOnDataLoss': 'false'}}"
                    )


def _by_topic(topic: LogTopic, given: Mapping[int, int] | Exact) -> dict[str, dict[int, int]]:
    """Offsets by topic, whether they were given by topic or only by partition."""
    by_topic = {str(name): dict(of) for name, of in given.items() if isinstance(of, Mapping)}
    plain = {int(partition): of for partition, of in given.items() if not isinstance(of, Mapping)}
    if plain and (topic.pattern or "," in topic.name):
        raise PipelineError(
            f"{topic.name}: offsets by partition mean one topic, and this may be several;"
            " start at a time, or declare an input for each topic"
        )
    return by_topic | ({topic.name: plain} if plain else {})


def _require_topics(topic: LogTopic, bootstrap: str) -> None:
    if not topic.pattern:
        # Raises for a topic that is not there, and for a broker that does not answer.
        offsets.start_offsets(bootstrap, topics(topic, bootstrap))


def _require_order(topic: LogTopic, start: Start | Exact, end: Start | Exact | None) -> None:
    if isinstance(start, datetime) and isinstance(end, datetime) and start.timestamp() > end.timestamp():
        raise PipelineError(f"{topic.name}: the range ends ({end}) before it begins ({start}); swap them")


def _milliseconds(time: datetime) -> str:
    return str(int(time.timestamp() * 1000))


def _one_line(text: str) -> str:
    return " ".join(text.split())
