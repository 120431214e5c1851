"""Time of a batch with the exactly-once sink and with Spark's own, which writes at least once.

Both copy the same topic in the same session, in turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines.decorator import Delivery
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.sink.exactly_once import ExactlyOnce
from millrace.pipelines.spark.session import CONSUMER_OPTIONS, session
from millrace.pipelines.topics.declaration import LogTopic
from millrace.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 100_000
RECORD_BYTES = 100
PARTITIONS = 2
TURNS = 4
BATCHES_PER_TURN = 3
KEYS = 1000
FLUSH_SECONDS = 60
DELIVERIES: tuple[Delivery, ...] = ("at-least-once", "exactly-once")
INPUT = "sink-input"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of every counted batch."""

    at_least_once: tuple[float, ...]
    exactly_once: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Ratio of the medians: exactly once to at least once."""
        return statistics.median(self.exactly_once) / statistics.median(self.at_least_once)


def measure(
    spark: SparkSession,
    bootstrap: str,
    *,
    records: int = RECORDS,
    turns: int = TURNS,
    partitions: int = PARTITIONS,
) -> Measured:
    """Let both sinks write batches of this many records, in turns; the first turn is warm-up."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, partitions) for topic in (INPUT, *DELIVERIES)]
    for made in admin.create_topics(topics).values():
        made.result()
    seconds: dict[Delivery, list[float]] = {delivery: [] for delivery in DELIVERIES}
    with tempfile.TemporaryDirectory(prefix="millrace-sink-") as checkpoints:
        for turn in range(turns + 1):
            fill(bootstrap, records * BATCHES_PER_TURN)
            for delivery in DELIVERIES:
                batches = copy(spark, bootstrap, delivery, records, Path(checkpoints))
                # A query's first batch also starts it.
                seconds[delivery] += batches[1:] if turn else ()
    return Measured(tuple(seconds["at-least-once"]), tuple(seconds["exactly-once"]))


def fill(bootstrap: str, records: int, topic: str = INPUT) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 0, "linger.ms": 20})
    value = b"x" * RECORD_BYTES
    for start in range(0, records, KEYS):
        producer.produce_batch(topic, [{"key": b"%d" % key, "value": value} for key in range(KEYS)])
        if start % (50 * KEYS) == 0:
            producer.poll(0)
    assert producer.flush(FLUSH_SECONDS) == 0


def copy(
    spark: SparkSession, bootstrap: str, delivery: Delivery, records: int, checkpoints: Path
) -> list[float]:
    """Copy new records of the input; returns the seconds of each batch."""
    rows = (
        spark.readStream.format("kafka")
        .options(**CONSUMER_OPTIONS)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", INPUT)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records)
        .load()
        .selectExpr(f"'{delivery}' as topic", "key", "value")
    )
    topic = LogTopic(delivery, "bytes")
    writer = rows.writeStream.option("checkpointLocation", str(checkpoints / delivery))
    if delivery == "exactly-once":
        writer = writer.foreachBatch(ExactlyOnce("sink-benchmark", topic, bootstrap))
    else:
        writer = at_least_once.write_stream(writer, bootstrap, topic)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        progress.durationMs["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress.numInputRows >= records
    ]


def run(announce: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Compare both sinks on a broker and a session of their own."""
    announce("batches of both sinks, in turns")
    # With adaptive execution a batch's tasks could differ between runs.
    settings = {"spark.driver.memory": "1g", "spark.sql.adaptive.enabled": "false"}
    spark = session("sink", master="local[2]", settings=settings)
    try:
        with BrokerProcess() as broker:
            measured = measure(spark, broker.bootstrap)
    finally:
        spark.stop()
    columns = {
        delivery: {"batch of 100,000 records, s": statistics.median(seconds)}
        for delivery, seconds in zip(DELIVERIES, (measured.at_least_once, measured.exactly_once), strict=True)
    }
    return columns | {"ratio (bar ≤ 1.5)": {"batch of 100,000 records, s": measured.ratio}}
