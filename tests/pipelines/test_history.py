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
from millrace.pipelines.console.progress_bar import Extent, ProgressBar, size
from millrace.pipelines.history import batch
from millrace.pipelines.history.range import moment, settle
from millrace.pipelines.kafka import offsets, topic_admin
from millrace.pipelines.kafka.records import read_to_end
from millrace.pipelines.run.options import redirected
from millrace.testing import Broker

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
# Not so old that the broker deletes it.
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-11-01T12:00:00+00:00", NOON),
        ("2026-11-01T12:00Z", NOON),
        ("@1793534400000", NOON),
        ("-2h", NOON - timedelta(hours=2)),
        ("-1d12h", NOON - timedelta(hours=36)),
        ("2026-11-01", datetime(2026, 11, 1).astimezone()),
    ],
)
def test_points_in_time_as_people_write_them(text: str, expected: object) -> None:
    assert moment(text, now=NOON) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "-", "-2y", "@x", "2026-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PipelineError, match="write 2026-11-01"):
        moment(text)


def test_outputs_are_sent_elsewhere_by_name() -> None:
    assert redirected(words, ["old"])["output"] == log.json("old", key="word")
    assert redirected(words, ["output=old"])["output"].name == "old"
    with pytest.raises(PipelineError, match="write --output output=TOPIC"):
        redirected(words, ["wrods=old"])


def test_a_batch_reads_exactly_its_range(spark: SparkSession, broker: Broker) -> None:
    hours = [TODAY + timedelta(hours=number) for number in range(6)]
    produce(broker, "lines", [(f"a b{number}", at) for number, at in enumerate(hours) for _ in range(2)])
    told = io.StringIO()
    summary = batch.run(
        words,
        spark,
        broker.bootstrap,
        start=hours[1],
        end=hours[3],
        console=Console(file=told, width=40),
    )
    assert counts(values(broker, "words")) == {"a": 4, "b1": 2, "b2": 2}
    assert summary.read == Extent(4, 16)
    assert summary.written == {"words": 4}
    assert "read 4 records (16 B), wrote 4 records to words" in str(summary)
    assert told.getvalue().splitlines()[0] == "words: 4 records, 16 B to read"


def test_a_batch_that_broke_off_completes_without_writing_twice(
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
    # That one was complete: asked again, it is written again.
    batch.run(words, spark, broker.bootstrap, **span)
    assert counts(values(broker, "again")) == counts(once + once)


def test_malformed_records_of_the_range_go_to_their_topic(spark: SparkSession, broker: Broker) -> None:
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


def test_what_cannot_run_as_a_batch_is_refused(spark: SparkSession, broker: Broker) -> None:
    produce(broker, "clicks", [("x", TODAY)])

    @pipeline(clicks=log.text("clicks", metadata=("timestamp",)), output=log.json("distinct"))
    def distinct(clicks: DataFrame) -> DataFrame:
        return clicks.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["value"])

    with pytest.raises(PipelineError, match="works on streams only; use dropDuplicates"):
        batch.run(distinct, spark, broker.bootstrap)


def test_a_range_ends_before_open_transactions(broker: Broker) -> None:
    produce(broker, "paid", [("a", TODAY)], partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", "b")
    producer.flush()

    @pipeline(paid=log.text("paid"), output=log.text("copy"))
    def copy(paid: DataFrame) -> DataFrame:
        return paid

    assert offsets.end_offsets(broker.bootstrap, ["paid"]) == {"paid": {0: 2}}
    assert settle(copy, broker.bootstrap)["paid"].end == {"paid": {0: 1}}
    producer.abort_transaction()


def test_the_bar_counts_records_and_bytes_on_a_terminal() -> None:
    told = io.StringIO()
    console = Console(file=told, force_terminal=True, width=120)
    with ProgressBar("words", Extent(2000, 3_200_000), console) as bar:
        bar.update(500)
    assert "500/2,000 records" in told.getvalue()
    assert "800 kB/3.2 MB" in told.getvalue()


def test_elsewhere_progress_is_a_line_now_and_then() -> None:
    told = io.StringIO()
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    with ProgressBar(
        "words", Extent(2000, 4000), Console(file=told, width=20), now=lambda: next(clock)
    ) as bar:
        bar.update(100)
        bar.update(500)
        bar.update(600)
    assert told.getvalue().splitlines() == [
        "words: 2,000 records, 4.0 kB to read",
        "words: 500 of 2,000 records, 1.0 kB of 4.0 kB (25 %)",
    ]


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3e12, "3.0 TB")]
)
def test_sizes_as_people_write_them(count: float, text: str) -> None:
    assert size(count) == text
