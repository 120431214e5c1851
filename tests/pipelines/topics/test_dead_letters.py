"""Malformed records are copied to a dead-letter topic."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines import LogTopic, log
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.topics import dead_letters, encoding, reading
from millrace.testing import Broker

from ..log_client import consume, create, produce


def run(rows: DataFrame, topic: LogTopic, bootstrap: str, checkpoint: Path) -> None:
    """Write the rows that exist now."""
    writer = at_least_once.write_stream(rows.writeStream, bootstrap, topic)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def test_malformed_records_are_copied_unchanged_and_the_stream_continues(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "orders", "orders.dead-letters", "sums")
    bad = b'{"n":"\xff"}'
    produce(
        bootstrap,
        "orders",
        ['{"n":1}', bad, None, '{"n":2}'],
        keys=[None, b"\xfe", "k", None],
        headers=[("trace", b"x")],
        timestamps=[1_793_534_400_000] * 4,
    )
    orders = log.json("orders", "n int", malformed=log.dead_letters("orders.dead-letters"))
    sums = log.json("sums")
    run(encoding.encode(reading.stream(spark, orders, bootstrap), sums), sums, bootstrap, tmp_path / "main")
    letters = dead_letters.stream(spark, orders, bootstrap, "adding")
    run(letters, dead_letters.output(orders), bootstrap, tmp_path / "letters")

    assert [record.value() for record in consume(bootstrap, "sums", 2)] == [b'{"n":1}', b'{"n":2}']
    first, second = consume(bootstrap, "orders.dead-letters", 2)
    assert (first.key(), first.value()) == (b"\xfe", bad)
    assert first.headers() == [
        ("trace", b"x"),
        ("millrace.error.reason", b"the value is not UTF-8"),
        ("millrace.error.topic", b"orders"),
        ("millrace.error.partition", b"0"),
        ("millrace.error.offset", b"1"),
        ("millrace.error.timestamp", b"1793534400000"),
        ("millrace.error.pipeline", b"adding"),
    ]
    assert (second.key(), second.value()) == (b"k", None)
    assert ("millrace.error.reason", b"the value is null") in second.headers()


def test_batch_over_a_range_has_dead_letters_too(spark: SparkSession, broker: Broker) -> None:
    create(broker.bootstrap, "past")
    produce(broker.bootstrap, "past", [b"\xff", b"\xff", "fine"])
    topic = log.text("past", malformed=log.dead_letters("past.dead-letters"))
    assert dead_letters.wanted(topic)
    found: list[Any] = dead_letters.batch(spark, topic, broker.bootstrap, "p", start={0: 1}).collect()
    [letter] = found
    assert (letter["topic"], letter["value"]) == ("past.dead-letters", b"\xff")
    headers = {header["key"]: header["value"] for header in letter["headers"]}
    assert headers["millrace.error.offset"] == b"1"
