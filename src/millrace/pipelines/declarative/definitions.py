"""Functions for the definitions in a declarative project: topics as tables, views and sinks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from millrace.pipelines.declarative.project import BOOTSTRAP_SETTING
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.topics import encoding, reading
from millrace.pipelines.topics.columns import column, quoted
from millrace.pipelines.topics.declaration import REGISTERED, LogTopic, Start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


def stream(topic: LogTopic) -> DataFrame:
    """A topic as a stream, for a streaming table or a flow."""
    from pyspark.sql import SparkSession

    spark, address = SparkSession.active(), bootstrap()
    return _in_thread(lambda: reading.stream(spark, topic, address))


def batch(topic: LogTopic, *, start: Start | None = None, end: Start | None = None) -> DataFrame:
    """The records that a topic holds now, for a materialized view."""
    from pyspark.sql import SparkSession

    spark, address = SparkSession.active(), bootstrap()
    return _in_thread(lambda: reading.batch(spark, topic, address, start=start, end=end))


def sink_options(topic: LogTopic) -> dict[str, str]:
    """The options of a `kafka` sink; its flows return rows encoded for the topic."""
    return at_least_once.sink_options(topic, bootstrap())


def encode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """Encode the columns of a flow for a `kafka` sink.

    The columns of a definition are not known when it is made, so less is checked than in other pipelines: a
    key is written as text, and headers must be Spark's array of keys and values.
    """
    from pyspark.sql import functions as F

    if topic.format in REGISTERED:
        raise PipelineError(f"{topic.name}: a declarative pipeline cannot write {topic.format}; use log.json")
    columns = [F.lit(topic.name).alias("topic")]
    if topic.format == "json":
        excluded = ", ".join(quoted(name) for name in (topic.headers, topic.partition) if name)
        fields = F.expr(f"struct(* EXCEPT ({excluded}))" if excluded else "struct(*)")
        columns.append(F.to_json(fields, encoding.JSON_WRITING).alias("value"))
    else:
        columns.append(F.col("value"))
    if topic.key is not None:
        columns.append(column(topic.key).cast("string").alias("key"))
    if topic.headers is not None:
        columns.append(column(topic.headers).cast(encoding.HEADERS).alias("headers"))
    if topic.partition is not None:
        columns.append(column(topic.partition).cast("int").alias("partition"))
    return frame.select(*columns)


def bootstrap() -> str:
    """The address of the log."""
    from pyspark.sql import SparkSession

    address = SparkSession.active().conf.get(BOOTSTRAP_SETTING, None)
    if address is None:
        raise PipelineError(
            "the address of the log is not set; run the project with `millrace run`, or set"
            f" {BOOTSTRAP_SETTING}"
        )
    return address


def _in_thread(call: Callable[[], T]) -> T:
    """Call in another thread: in the thread of a definition, Spark refuses to analyze, such as a schema."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()
