"""Encoded rows to a topic through Spark's own Kafka sink: at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(writer: DataStreamWriter, bootstrap: str, topic: LogTopic) -> DataStreamWriter:
    """Let a stream of encoded rows write to the topic."""
    return writer.format("kafka").options(**sink_options(topic, bootstrap))


def write_batch(frame: DataFrame, topic: LogTopic, bootstrap: str) -> None:
    """Write encoded rows to the topic now."""
    frame.write.format("kafka").mode("append").options(**sink_options(topic, bootstrap)).save()


def sink_options(topic: LogTopic, bootstrap: str) -> dict[str, str]:
    """The options of Spark's Kafka sink for a topic."""
    return {"kafka.bootstrap.servers": bootstrap, **topic.options}
