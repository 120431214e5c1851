"""Encoded rows to a topic by Spark's own Kafka sink: every row arrives, some twice if something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.pipelines.log import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def at_least_once(writer: DataStreamWriter, bootstrap: str, topic: LogTopic) -> DataStreamWriter:
    """Let a stream of encoded rows go to the topic."""
    return writer.format("kafka").options(**sink_options(topic, bootstrap))


def write_batch(frame: DataFrame, topic: LogTopic, bootstrap: str) -> None:
    """Write encoded rows to the topic now."""
    frame.write.format("kafka").mode("append").options(**sink_options(topic, bootstrap)).save()


def sink_options(topic: LogTopic, bootstrap: str) -> dict[str, str]:
    """What Spark's Kafka sink is told about a topic."""
    return {"kafka.bootstrap.servers": bootstrap, **topic.options}
