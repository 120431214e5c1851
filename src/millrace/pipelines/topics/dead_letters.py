"""Dead letters: malformed records, copied to another topic with the reason and their origin in headers.

The query of the pipeline drops them. A companion query over the same topic selects and writes them, so
neither query slows the other down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.pipelines.topics import decoding, encoding, reading
from millrace.pipelines.topics.declaration import DeadLetters, LogTopic, Start
from millrace.pipelines.topics.reading import ExactOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "millrace.error."


def wanted(topic: LogTopic) -> bool:
    """Whether the malformed records of an input go to a dead-letter topic."""
    return isinstance(topic.malformed, DeadLetters)


def output(topic: LogTopic) -> LogTopic:
    """The dead-letter topic of an input, as an output."""
    assert isinstance(topic.malformed, DeadLetters)
    # The connection is the same; the other options are about reading the input.
    connection = {name: value for name, value in topic.options.items() if name.startswith("kafka.")}
    return LogTopic(topic.malformed.topic, "bytes", key="key", headers="headers", options=connection)


def stream(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    pipeline: str,
    *,
    start: ExactOffsets | None = None,
    limit: int | None = None,
) -> DataFrame:
    """The malformed records of an input as a stream, encoded for the sinks; arguments as `reading.stream`."""
    return letters(reading.records(spark, topic, bootstrap, start=start, limit=limit), topic, pipeline)


def batch(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    pipeline: str,
    *,
    start: Start | ExactOffsets | None = None,
    end: Start | ExactOffsets | None = None,
) -> DataFrame:
    """The malformed records of a range, encoded for the sinks; arguments as `reading.batch`."""
    return letters(reading.stored_records(spark, topic, bootstrap, start=start, end=end), topic, pipeline)


def letters(frame: DataFrame, topic: LogTopic, pipeline: str) -> DataFrame:
    """Select the malformed records of Spark's Kafka source and encode them for the sinks."""
    origin = {
        "reason": F.col(decoding.REASON),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "pipeline": F.lit(pipeline),
    }
    added = F.array(*(_header(PREFIX + name, value) for name, value in origin.items()))
    kept = F.coalesce(F.col("headers"), F.array().cast(encoding.HEADERS))
    malformed = decoding.malformed(frame, topic)
    return encoding.encode(
        malformed.select("key", "value", F.concat(kept, added).alias("headers")), output(topic)
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
