"""Records that could not be read go to another topic, as they were, with reason and origin in headers.

A pipeline's own query drops them; a companion query over the same topic picks them out and writes them down,
so that neither holds the other up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.pipelines import codecs, reading
from millrace.pipelines.log import DeadLetters, LogTopic, Start
from millrace.pipelines.reading import Exact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "millrace.error."


def wanted(topic: LogTopic) -> bool:
    """Whether an input's malformed records go to a topic."""
    return isinstance(topic.malformed, DeadLetters)


def output(topic: LogTopic) -> LogTopic:
    """The topic that an input's malformed records go to, as an output."""
    assert isinstance(topic.malformed, DeadLetters)
    # The way to the broker is the same; where reading begins, and how, is the input's own business.
    ways = {name: value for name, value in topic.options.items() if name.startswith("kafka.")}
    return LogTopic(topic.malformed.topic, "bytes", key="key", headers="headers", options=ways)


def stream(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    pipeline: str,
    *,
    start: Exact | None = None,
    limit: int | None = None,
) -> DataFrame:
    """An input's malformed records as they come, encoded for the sinks; arguments as of `reading.stream`."""
    return letters(reading.records(spark, topic, bootstrap, start=start, limit=limit), topic, pipeline)


def batch(
    spark: SparkSession,
    topic: LogTopic,
    bootstrap: str,
    pipeline: str,
    *,
    start: Start | Exact | None = None,
    end: Start | Exact | None = None,
) -> DataFrame:
    """The malformed records of a range, encoded for the sinks; arguments as of `reading.batch`."""
    return letters(reading.stored_records(spark, topic, bootstrap, start=start, end=end), topic, pipeline)


def letters(frame: DataFrame, topic: LogTopic, pipeline: str) -> DataFrame:
    """Of records from Spark's Kafka source the malformed ones, encoded for the sinks."""
    origin = {
        "reason": F.col(codecs.REASON),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "pipeline": F.lit(pipeline),
    }
    told = F.array(*(_header(PREFIX + name, value) for name, value in origin.items()))
    kept = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    found = codecs.malformed(frame, topic)
    return codecs.encode(found.select("key", "value", F.concat(kept, told).alias("headers")), output(topic))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
