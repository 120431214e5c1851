"""A topic as a DataFrame: as a stream, as a batch over a range, or as a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.spark.session import CONSUMER_OPTIONS
from millrace.pipelines.topics import decoding
from millrace.pipelines.topics.declaration import DeadLetters, GroupOffsets, LogTopic, Start
from millrace.pipelines.topics.names import listed_names, topic_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ExactOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""

# Spark's codes for the first and the next offset of a partition.
EARLIEST, LATEST = -2, -1

_DATA_LOSS = re.compile(r"[^.\n:]*(KAFKA_DATA_LOSS|may have been lost|OffsetOutOfRange)[^\n]*")


def stream(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: ExactOffsets | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Read a topic as a stream, in the columns that it declares. A table gives its newest rows.

    `start` overrides the start that the topic declares. `limit` is the most records that a batch reads.
    """
    if topic.table:
        return table(spark, topic, bootstrap)
    return decoding.decode(records(spark, topic, bootstrap, start=start, limit=limit), topic)


def batch(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Start | ExactOffsets | None = None,
    end: Start | ExactOffsets | None = None,
) -> DataFrame:
    """Read a range of a topic, in the same columns as its stream. A table gives its rows as of `end`."""
    if topic.table:
        return table(spark, topic, bootstrap, end=end)
    return decoding.decode(stored_records(spark, topic, bootstrap, start=start, end=end), topic)


def table(
    spark: SparkSession, topic: LogTopic, bootstrap: str, *, end: Start | ExactOffsets | None = None
) -> DataFrame:
    """Read the newest row of every key that is not deleted. A stream reads it again for every batch."""
    return decoding.newest(stored_records(spark, topic, bootstrap, start="earliest", end=end), topic)


def records(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    *,
    start: Start | ExactOffsets | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Read a stream in the columns of Spark's Kafka source, without decoding."""
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
    start: Start | ExactOffsets | None = None,
    end: Start | ExactOffsets | None = None,
) -> DataFrame:
    """Read a range in the columns of Spark's Kafka source, without decoding."""
    _require_topics(topic, bootstrap)
    # A batch that starts at the latest record would be empty.
    start = start or ("earliest" if topic.start == "latest" else topic.start)
    _require_order(topic, start, end)
    _require_kept(topic, bootstrap, start)
    options = source_options(topic, bootstrap)
    options |= _starting(topic, bootstrap, start) | _ending(topic, bootstrap, end or "latest")
    return spark.read.format("kafka").options(**{**options, **topic.options}).load()


def source_options(topic: LogTopic, bootstrap: str) -> dict[str, str]:
    """The options of Spark's Kafka source for a topic, except for the range."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribePattern" if topic.pattern else "subscribe": topic.name,
        # Without this a pipeline would read records of aborted transactions.
        "kafka.isolation.level": "read_committed",
        **CONSUMER_OPTIONS,
    }
    if "headers" in topic.metadata or isinstance(topic.malformed, DeadLetters):
        options["includeHeaders"] = "true"
    return {**options, **topic.options}


def explain(error: BaseException) -> PipelineError | None:
    """Explain the error of a query that failed on its input; None if it failed on something else."""
    text = str(error)
    if malformed := decoding.failure(text):
        return PipelineError(malformed)
    if lost := _DATA_LOSS.search(text):
        return PipelineError(
            f"records were deleted before they were read ({_one_line(lost[0])}); keep them longer"
            " (retention.ms), or declare options={'failOnDataLoss': 'false'} to continue with what is left"
        )
    return None


# Where reading starts and ends


def _starting(topic: LogTopic, bootstrap: str, start: Start | ExactOffsets) -> dict[str, str]:
    match start:
        case "earliest" | "latest":
            return {"startingOffsets": str(start)}
        case datetime():
            return {
                "startingTimestamp": _milliseconds(start),
                # Partitions without a record this new start at their end.
                "startingOffsetsByTimestampStrategy": "latest",
            }
        case _:
            return {"startingOffsets": _for_all_partitions(topic, bootstrap, start, EARLIEST)}


def _ending(topic: LogTopic, bootstrap: str, end: Start | ExactOffsets) -> dict[str, str]:
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
            return {"endingOffsets": _for_all_partitions(topic, bootstrap, end, LATEST)}


def _for_all_partitions(
    topic: LogTopic, bootstrap: str, given: Mapping[int, int] | ExactOffsets | GroupOffsets, default: int
) -> str:
    """Offsets in Spark's format, which needs every partition; `default` fills those not given."""
    names = topic_names(topic, bootstrap)
    if isinstance(given, GroupOffsets):
        by_topic = _group_offsets(bootstrap, given.group, names, default)
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
    complete = {
        name: {str(number): by_topic.get(name, {}).get(number, default) for number in by_partition}
        for name, by_partition in ends.items()
    }
    return json.dumps(complete)


def _group_offsets(bootstrap: str, group: str, names: list[str], default: int) -> dict[str, dict[int, int]]:
    """The committed offsets of a group; the oldest record where it has committed nothing."""
    committed = offsets.group_offsets(bootstrap, group, names)
    if default == EARLIEST:
        return committed
    # Spark does not accept "earliest" as an end.
    oldest = offsets.start_offsets(bootstrap, names)
    return {name: {**oldest[name], **committed.get(name, {})} for name in names}


def _by_topic(topic: LogTopic, given: Mapping[int, int] | ExactOffsets) -> dict[str, dict[int, int]]:
    """Offsets by topic, whether given by topic or by partition only."""
    by_topic = {str(name): dict(offset) for name, offset in given.items() if isinstance(offset, Mapping)}
    by_partition = {
        int(number): offset for number, offset in given.items() if not isinstance(offset, Mapping)
    }
    if by_partition and (topic.pattern or "," in topic.name):
        raise PipelineError(
            f"{topic.name}: offsets by partition mean one topic, and this may be several;"
            " start at a time, or declare an input for each topic"
        )
    return by_topic | ({topic.name: by_partition} if by_partition else {})


# Checks


def _require_topics(topic: LogTopic, bootstrap: str) -> None:
    if not topic.pattern:
        # Raises if a topic is missing, and if the broker does not answer.
        offsets.start_offsets(bootstrap, listed_names(topic))


def _require_offset(name: str, partition: int, offset: int, ends: Mapping[int, int]) -> None:
    if partition not in ends:
        numbers = ", ".join(map(str, sorted(ends)))
        raise PipelineError(f"{name} has no partition {partition}; give offsets for {numbers}")
    if offset > ends[partition]:
        raise PipelineError(
            f"{name}: partition {partition} ends at offset {ends[partition]}, before {offset};"
            " give an offset up to there, or 'latest'"
        )


def _require_kept(topic: LogTopic, bootstrap: str, start: Start | ExactOffsets) -> None:
    """Refuse a batch that starts before the oldest record. For a stream Spark checks its checkpoint."""
    if isinstance(start, Mapping) and topic.options.get("failOnDataLoss", "true").lower() == "true":
        given = _by_topic(topic, start)
        for name, oldest in offsets.start_offsets(bootstrap, given).items():
            for partition, offset in given[name].items():
                if 0 <= offset < oldest.get(partition, 0):
                    raise PipelineError(
                        f"{name}: offset {offset} of partition {partition} is deleted, the oldest is"
                        f" {oldest[partition]}; start there, or declare"
                        " options={'failOnDataLoss': 'false'}"
                    )


def _require_order(topic: LogTopic, start: Start | ExactOffsets, end: Start | ExactOffsets | None) -> None:
    if isinstance(start, datetime) and isinstance(end, datetime) and start.timestamp() > end.timestamp():
        raise PipelineError(f"{topic.name}: the range ends ({end}) before it begins ({start}); swap them")


def _milliseconds(time: datetime) -> str:
    return str(int(time.timestamp() * 1000))


def _one_line(text: str) -> str:
    return " ".join(text.split())
