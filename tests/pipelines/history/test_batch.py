"""Pipelines as batches over a range of the log."""

import io
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from rich.console import Console

from millrace.pipelines import PipelineError, log, pipeline
from millrace.pipelines.console.progress_bar import Extent
from millrace.pipelines.history import batch
from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.kafka.records import read_to_end
from millrace.pipelines.run.options import redirected
from millrace.testing import Broker

# Recent enough that the broker keeps the records.
TODAY = datetime.now(UTC).replace(minute=0) - timedelta(hours=8)


@pipeline(lines=log.text("lines", metadata=("timestamp",)), output=log.json("words", key="word"))
def words(lines: DataFrame) -> DataFrame:
    return (
        lines.selectExpr("explode(split(value, ' ')) as word", "timestamp")
        .withWatermark("timestamp", "1 second")
        .groupBy(window("timestamp", "1 hour"), "word")
        .count()
    )


def produce(broker: Broker, topic: str, records: list[tuple[str, datetime]], partitions: int = 2) -> None:
    topic_admin.ensure(topic, broker.bootstrap, partitions=partitions)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, (value, at) in enumerate(records):
        producer.produce(topic, value, partition=number % partitions, timestamp=int(at.timestamp() * 1000))
    producer.flush()


def values(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in read_to_end(topic, broker.bootstrap)]


def counts(rows: list[dict[str, Any]]) -> Counter[object]:
    total: Counter[object] = Counter()
    for row in rows:
        total[row["word"]] += row["count"]
    return total


def test_batch_reads_exactly_its_range(spark: SparkSession, broker: Broker) -> None:
    hours = [TODAY + timedelta(hours=number) for number in range(6)]
    produce(broker, "lines", [(f"a b{number}", at) for number, at in enumerate(hours) for _ in range(2)])
    printed = io.StringIO()
    summary = batch.run(
        words,
        spark,
        broker.bootstrap,
        start=hours[1],
        end=hours[3],
        console=Console(file=printed, width=40),
    )
    assert counts(values(broker, "words")) == {"a": 4, "b1": 2, "b2": 2}
    assert summary.read == Extent(4, 16)
    assert summary.written == {"words": 4}
    assert "read 4 records (16 B), wrote 4 records to words" in str(summary)
    assert printed.getvalue().splitlines()[0] == "words: 4 records, 16 B to read"


def test_interrupted_batch_completes_without_writing_twice(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, "lines", [("x", TODAY)])
    outputs = redirected(words, ["again"])
    span = {"start": "earliest", "end": "latest", "outputs": outputs}

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(topic_admin, "delete_groups", crash)
        batch.run(words, spark, broker.bootstrap, **span)
    once = values(broker, "again")
    batch.run(words, spark, broker.bootstrap, **span)
    assert values(broker, "again") == once
    # That batch was complete: if it runs again, it is written again.
    batch.run(words, spark, broker.bootstrap, **span)
    assert counts(values(broker, "again")) == counts(once + once)


def test_malformed_records_of_the_range_go_to_the_dead_letter_topic(
    spark: SparkSession, broker: Broker
) -> None:
    produce(broker, "orders", [('{"item": "tea"}', TODAY), ("broken", TODAY)], partitions=1)

    @pipeline(
        orders=log.json("orders", "item string", malformed=log.dead_letters("orders-bad")),
        output=log.text("items"),
        delivery="at-least-once",
    )
    def items(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("item as value")

    summary = batch.run(items, spark, broker.bootstrap)
    assert summary.written == {"items": 1, "orders-bad": 1}
    assert [message.value() for message in read_to_end("orders-bad", broker.bootstrap)] == [b"broken"]


def test_streaming_only_operator_is_refused(spark: SparkSession, broker: Broker) -> None:
    produce(broker, "clicks", [("x", TODAY)])

    @pipeline(clicks=log.text("clicks", metadata=("timestamp",)), output=log.json("distinct"))
    def distinct(clicks: DataFrame) -> DataFrame:
        return clicks.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["value"])

    with pytest.raises(PipelineError, match="works on streams only; use dropDuplicates"):
        batch.run(distinct, spark, broker.bootstrap)
