"""Topics as streams, as batches over a range and as tables, on a real broker."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines import LogTopic, PipelineError, log
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.topics import encoding, reading
from millrace.testing import Broker

from ..log_client import consume, create, produce

HOUR_MS = 3_600_000
NOON_MS = 1_793_534_400_000


def values(frame: DataFrame) -> list[Any]:
    return sorted(row["value"] for row in frame.collect())


def streamed(frame: DataFrame, checkpoint: Path) -> list[Any]:
    """Run a stream over the records that exist now, and return its values."""
    found: list[Any] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(row["value"] for row in batch.collect())

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


@pytest.fixture(scope="module")
def hours(broker: Broker) -> str:
    """A topic of two partitions with three records each, an hour apart."""
    create(broker.bootstrap, "hours", partitions=2)
    for partition in (0, 1):
        times = [NOON_MS + hour * HOUR_MS for hour in range(3)]
        texts = [f"{partition}-{hour}" for hour in range(3)]
        headers = [("trace", b"x")]
        produce(broker.bootstrap, "hours", texts, partition=partition, timestamps=times, headers=headers)
    return "hours"


@pytest.fixture(scope="module")
def group(broker: Broker, hours: str) -> str:
    """A consumer group that has read two records of partition 1."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition(hours, 1, 2)], asynchronous=False)
    consumer.close()
    return "readers"


def at(hour: float) -> datetime:
    return datetime.fromtimestamp(NOON_MS / 1000 + hour * 3600)


def test_batch_reads_a_range(spark: SparkSession, broker: Broker, hours: str, group: str) -> None:
    def found(topic: LogTopic | None = None, **ends: Any) -> list[Any]:
        return values(reading.batch(spark, topic or log.text(hours), broker.bootstrap, **ends))

    whole = ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert found() == whole
    assert found(log.text(hours, start="latest")) == whole
    assert found(start=at(0.5), end=at(2)) == ["0-1", "1-1"]
    assert found(start=at(9)) == []
    assert found(start={0: 1, 1: 3}) == ["0-1", "0-2"]
    assert found(start={hours: {0: 1}}, end={hours: {0: 2, 1: 1}}) == ["0-1", "1-0"]
    assert found(start=log.group(group)) == ["0-0", "0-1", "0-2", "1-2"]
    assert found(end=log.group(group)) == ["1-0", "1-1"]
    assert found(log.text(hours, start=at(2))) == ["0-2", "1-2"]


def test_stream_starts_where_declared(
    spark: SparkSession, broker: Broker, hours: str, group: str, tmp_path: Path
) -> None:
    def found(topic: LogTopic, start: Mapping[str, Mapping[int, int]] | None = None) -> list[Any]:
        frame = reading.stream(spark, topic, broker.bootstrap, start=start, limit=4)
        number = len(list(tmp_path.iterdir()))
        return streamed(frame, tmp_path / str(number))

    assert found(log.text(hours, start=log.group(group))) == ["0-0", "0-1", "0-2", "1-2"]
    assert found(log.text(hours, start=at(2))) == ["0-2", "1-2"]
    assert found(log.text(hours, start="latest"), {hours: {0: 3, 1: 1}}) == ["1-1", "1-2"]


def test_patterns_and_lists_read_several_topics(spark: SparkSession, broker: Broker) -> None:
    names = ("many-a", "many-b", "not-many")
    create(broker.bootstrap, *names)
    for name in names:
        produce(broker.bootstrap, name, [name])
    for topic in (
        log.text("many-.", pattern=True, metadata=("topic", "partition", "offset")),
        log.text("many-a, many-b", metadata=("topic", "partition", "offset")),
    ):
        found = reading.batch(spark, topic, broker.bootstrap).collect()
        assert sorted(map(tuple, found)) == [("many-a", "many-a", 0, 0), ("many-b", "many-b", 0, 0)]
    with pytest.raises(PipelineError, match="offsets by partition mean one topic"):
        reading.batch(spark, log.text("many-.", pattern=True), broker.bootstrap, start={0: 0})


def test_headers_are_read_when_declared(spark: SparkSession, broker: Broker, hours: str) -> None:
    topic = log.text(hours, metadata=("headers", "timestamp"))
    row = reading.batch(spark, topic, broker.bootstrap, start={0: 2, 1: 3}).first()
    assert row is not None
    assert (row["value"], [tuple(header) for header in row["headers"]], row["timestamp"]) == (
        "0-2",
        [("trace", b"x")],
        at(2),
    )


def test_only_committed_records_are_read(spark: SparkSession, broker: Broker) -> None:
    create(broker.bootstrap, "committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer"})
    producer.init_transactions()
    for value, end in (("aborted", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("committed", value)
        producer.flush()
        end()
    assert values(reading.batch(spark, log.text("committed"), broker.bootstrap)) == ["kept"]
    dirty = log.text("committed", options={"kafka.isolation.level": "read_uncommitted"})
    assert values(reading.batch(spark, dirty, broker.bootstrap)) == ["aborted", "kept"]


def test_stream_joined_with_a_table_sees_its_newest_rows(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    create(broker.bootstrap, "clicks")
    create(broker.bootstrap, "users", partitions=2)
    users = log.table("users", "name string", key="id")
    clicks = reading.stream(spark, log.json("clicks", "id string, page string"), broker.bootstrap)
    joined = clicks.join(reading.stream(spark, users, broker.bootstrap), "id", "left")
    found: list[tuple[Any, ...]] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(sorted(map(tuple, batch.collect())))

    query = joined.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    try:
        for page, names in (
            (1, {"a": '{"name":"Ann"}'}),
            (2, {"a": '{"name":"Anne"}', "b": '{"name":"Bob"}'}),
        ):
            produce(broker.bootstrap, "users", names.values(), keys=list(names))
            produce(broker.bootstrap, "clicks", [f'{{"id":"{key}","page":"{page}"}}' for key in "ab"])
            query.processAllAvailable()
        produce(broker.bootstrap, "users", [None], keys=["b"])
        produce(broker.bootstrap, "clicks", ['{"id":"b","page":"3"}'])
        query.processAllAvailable()
    finally:
        query.stop()
    assert found == [
        ("a", "1", "Ann"),
        ("b", "1", None),
        ("a", "2", "Anne"),
        ("b", "2", "Bob"),
        ("b", "3", None),
    ]


@pytest.mark.parametrize("malformed", ["fail", "drop"])
def test_decoding_and_encoding_run_in_real_time_mode(
    spark: SparkSession, broker: Broker, tmp_path: Path, malformed: Literal["fail", "drop"]
) -> None:
    source, target = f"fast-in-{malformed}", f"fast-out-{malformed}"
    create(broker.bootstrap, source, target)
    produce(broker.bootstrap, source, ['{"n":1}'] + ['{"n":"bad"}'] * (malformed == "drop"))
    topic = log.json(source, "n int, at timestamp, must string", malformed=malformed, metadata=("key",))
    output = log.json(target, key="n")
    encoded = encoding.encode(reading.stream(spark, topic, broker.bootstrap), output)
    query = (
        at_least_once.write_stream(encoded.writeStream, broker.bootstrap, output)
        .option("checkpointLocation", str(tmp_path))
        .outputMode("update")
        .trigger(realTime="5 minutes")
        .start()
    )
    try:
        # No batch ends during the test: results come from a batch that is running.
        [first] = consume(broker.bootstrap, target, 1)
        produce(broker.bootstrap, source, ['{"n":2,"must":"x"}'])
        [_, second] = consume(broker.bootstrap, target, 2)
        assert query.exception() is None
    finally:
        query.stop()
    assert (first.key(), first.value()) == (b"1", None)
    assert (second.key(), second.value()) == (b"2", b'{"n":2,"must":"x"}')


def test_malformed_record_ends_a_stream_with_one_line(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    create(broker.bootstrap, "spoilt")
    produce(broker.bootstrap, "spoilt", ['{"value":1}', '{"value":\n\n"x"}'])
    frame = reading.stream(spark, log.json("spoilt", "value int"), broker.bootstrap)
    with pytest.raises(StreamingQueryException) as raised:
        streamed(frame, tmp_path)
    explained = str(reading.explain(raised.value))
    assert explained.startswith(
        "cannot read topic spoilt, partition 0, offset 1: value is not int: x; correct"
    )
    assert explained.endswith("malformed=log.dead_letters('spoilt.dead-letters')")


def test_deleted_records_are_reported_before_a_batch_and_at_the_start_of_a_stream(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    create(broker.bootstrap, "short")
    produce(broker.bootstrap, "short", ["a", "b", "c"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = admin.delete_records([TopicPartition("short", 0, 2)]).values()
    deleted.result(10)
    with pytest.raises(PipelineError, match="offset 1 of partition 0 is deleted, the oldest is 2"):
        reading.batch(spark, log.text("short"), broker.bootstrap, start={0: 1})
    frame = reading.stream(spark, log.text("short", start={0: 1}), broker.bootstrap)
    with pytest.raises(StreamingQueryException) as raised:
        streamed(frame, tmp_path / "strict")
    assert "records were deleted before they were read" in str(reading.explain(raised.value))
    lenient = log.text("short", start={0: 1}, options={"failOnDataLoss": "false"})
    assert streamed(reading.stream(spark, lenient, broker.bootstrap), tmp_path / "lenient") == ["c"]


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (
            lambda spark, at: reading.stream(spark, log.text("nowhere"), at),
            "there is no topic nowhere at .*millrace topics --create --topic nowhere",
        ),
        (
            lambda spark, at: reading.stream(spark, log.text("hours", start={7: 0}), at),
            "hours has no partition 7; give offsets for 0, 1",
        ),
        (
            lambda spark, at: reading.stream(spark, log.text("hours", start={0: 9}), at),
            "hours: partition 0 ends at offset 3, before 9",
        ),
        (
            lambda spark, at: reading.batch(spark, log.text("hours"), at, end="earliest"),
            "ends at the earliest record is empty",
        ),
        (
            lambda spark, at: reading.batch(
                spark, log.text("hours"), at, start=datetime(2026, 2, 1), end=datetime(2026, 1, 1)
            ),
            "before it begins",
        ),
    ],
)
def test_invalid_ranges_are_refused_before_the_start(
    spark: SparkSession,
    broker: Broker,
    hours: str,
    read: Callable[[SparkSession, str], DataFrame],
    problem: str,
) -> None:
    with pytest.raises(PipelineError, match=problem) as refused:
        read(spark, broker.bootstrap)
    assert "\n" not in str(refused.value)
