"""Rows to topics through Spark's own sink."""

from pathlib import Path

from pyspark.sql import SparkSession

from millrace.pipelines import log
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.topics import encoding, reading
from millrace.testing import Broker

from ..log_client import consume, create, produce


def test_batch_is_written_with_keys_headers_and_partitions(spark: SparkSession, broker: Broker) -> None:
    create(broker.bootstrap, "written", partitions=2)
    topic = log.json("written", key="id", headers="h", partition="p")
    rows = "values (7, 'x', map('trace', 'abc'), 1), (8, null, null, 0) as t(id, s, h, p)"
    at_least_once.write_batch(
        encoding.encode(spark.sql(f"select * from {rows}"), topic), topic, broker.bootstrap
    )
    [deleting] = consume(broker.bootstrap, "written", 1, partition=0)
    [kept] = consume(broker.bootstrap, "written", 1, partition=1)
    assert (kept.key(), kept.value(), kept.headers()) == (b"7", b'{"id":7,"s":"x"}', [("trace", b"abc")])
    assert (deleting.key(), deleting.value(), deleting.headers()) == (b"8", None, None)


def test_stream_is_written(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    create(broker.bootstrap, "words", "shouts")
    produce(broker.bootstrap, "words", ["one", "two"], keys=["a", "b"])
    output = log.text("shouts", key="key")
    words = reading.stream(spark, log.text("words", metadata=("key",)), broker.bootstrap)
    rows = encoding.encode(words.selectExpr("upper(value) as value", "key"), output)
    writer = at_least_once.write_stream(rows.writeStream, broker.bootstrap, output)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    written = consume(broker.bootstrap, "shouts", 2)
    assert [(record.key(), record.value()) for record in written] == [(b"a", b"ONE"), (b"b", b"TWO")]
