"""Each row of a batch is in the log once, whatever fails on the way.

`make soak` plays runs in which driver, workers and broker are killed; MILLRACE_CRASH_SEEDS sets their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.sink.exactly_once import (
    ADAPTIVE,
    CHECKPOINT_PROPERTY,
    ExactlyOnce,
    client_settings,
    committed_batches,
)
from millrace.pipelines.sink.producer import new_producer, take_over
from millrace.pipelines.topics.declaration import LogTopic
from millrace.testing import Broker

from ...reading import read_topic
from ...seeds import seeds
from .exactly_once_chaos import chaos

SECONDS = 30
_names = count()


class Sink:
    """A topic, a query that writes to it, and the records that readers see."""

    def __init__(self, spark: SparkSession, bootstrap: str, *, partitions: int = 2) -> None:
        self.query = f"query-{next(_names)}"
        self.topic = f"{self.query}-output"
        self.bootstrap = bootstrap
        self._spark = spark
        if partitions:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(self.topic, partitions)])[self.topic].result()

    def new(self, **options: str) -> ExactlyOnce:
        return ExactlyOnce(self.query, LogTopic(self.topic, "bytes", options=options), self.bootstrap)

    def allow(self, message_bytes: int) -> None:
        limit = ConfigEntry(
            "max.message.bytes", str(message_bytes), incremental_operation=AlterConfigOpType.SET
        )
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[limit])
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.incremental_alter_configs([topic])[topic].result()

    def rows(self, *expressions: str, first: int = 0, last: int = 200, tasks: int = 2) -> DataFrame:
        wanted = expressions or ("cast(id % 7 as string) as key", "cast(id as string) as value")
        return self._spark.range(first, last, 1, tasks).selectExpr(*wanted)

    def records(self) -> list[Message]:
        return list(read_topic(self.bootstrap, self.topic))

    def values(self) -> list[int]:
        return sorted(int(record.value() or b"") for record in self.records())


@pytest.fixture(scope="module")
def once(spark: SparkSession) -> Iterator[SparkSession]:
    """A session without adaptive plans that passes rows to Python a few at a time."""
    session = spark.newSession()
    session.conf.set(ADAPTIVE, "false")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    yield session
    spark.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, None)


@pytest.fixture
def sink(once: SparkSession, broker: Broker) -> Sink:
    return Sink(once, broker.bootstrap)


def test_repeated_batch_writes_nothing(sink: Sink) -> None:
    sink.new()(sink.rows(), 0)
    sink.new()(sink.rows(), 0)
    assert sink.values() == list(range(200))
    assert committed_batches(sink.bootstrap, sink.query, 3) == {0: 0, 1: 0}


def test_batches_follow_each_other(sink: Sink) -> None:
    write = sink.new()
    for batch in range(3):
        write(sink.rows(first=batch * 100, last=batch * 100 + 100, tasks=batch + 1), batch)
    assert sink.values() == list(range(300))
    assert max(committed_batches(sink.bootstrap, sink.query, 3).values()) == 2


def test_rows_that_arrive_in_other_tasks_on_the_second_run_are_written_once(sink: Sink) -> None:
    """Spark's Kafka source assigns partitions to other tasks when it repeats a batch."""
    too_large = 1_500_000
    columns = (
        "cast(if({id} % 4 = 0, {id} % 2, null) as int) as partition",
        "if({id} % 4 <= 1, unhex('ff' || {id}), null) as key",
        f"lpad(cast({{id}} as string), if({{id}} = 77, {too_large}, 3), '0') as value",
    )
    with pytest.raises(PipelineError, match="too large"):
        sink.new()(sink.rows(*(column.format(id="id") for column in columns)), 0)
    assert 0 < len(sink.records()) < 200, "one task has written its part"
    sink.allow(too_large + 1000)
    sink.new()(sink.rows(*(column.format(id="(199 - id)") for column in columns)), 0)
    assert sorted(int((record.value() or b"")[-3:]) for record in sink.records()) == list(range(200))


def test_rows_of_a_partition_or_a_key_stay_in_order(sink: Sink) -> None:
    keyed = ("cast(id % 7 as string) as key", "cast(id as string) as value")
    sink.new()(sink.rows(*keyed, last=400), 0)
    sink.new()(sink.rows(*keyed, "cast(id % 2 as int) as partition", first=400, last=800), 1)
    found: dict[object, list[int]] = {}
    for record in sink.records():
        number = int(record.value() or b"")
        task = number // 200
        found.setdefault((task, record.key() if number < 400 else record.partition()), []).append(number)
    assert len(found) == 2 * 7 + 2 * 2
    assert all(numbers == sorted(numbers) for numbers in found.values())


def test_task_that_fails_upstream_commits_nothing(sink: Sink) -> None:
    """Spark ends the input of such a task as if it were complete."""
    failing = sink.rows("cast(if(id = 19000, raise_error('broken'), id) as string) as value", last=20_000)
    with pytest.raises(PySparkException, match="broken"):
        sink.new()(failing, 0)
    assert set(sink.values()) <= set(range(10_000)), "the second task has committed some of its rows"
    sink.new()(sink.rows(last=20_000), 0)
    assert sink.values() == list(range(20_000))


def test_number_of_tasks_may_change_only_if_no_task_of_the_batch_has_committed(sink: Sink) -> None:
    sink.new()(sink.rows(), 0)
    with pytest.raises(PipelineError, match=r"part of batch 0 with 2 tasks and now has 3.*; run it with"):
        sink.new()(sink.rows(tasks=3), 0)
    sink.new()(sink.rows(first=200, last=300, tasks=3), 1)
    assert sink.values() == list(range(300))


def test_restored_checkpoint_is_refused_and_a_new_one_starts_over(sink: Sink, once: SparkSession) -> None:
    once.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, "the old one")
    for batch in range(3):
        sink.new()(sink.rows(last=4), batch)
    with pytest.raises(PipelineError, match=r"already has its batches up to 2.*old copy; restore"):
        sink.new()(sink.rows(last=4), 1)
    once.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, "a new one")
    sink.new()(sink.rows(first=4, last=8), 0)
    assert sink.values() == sorted([*range(4)] * 3 + [*range(4, 8)])


def test_zombie_is_fenced_and_its_open_transaction_is_aborted(sink: Sink) -> None:
    write = sink.new()
    write(sink.rows(last=10), 0)
    zombie = new_producer(client_settings(sink.bootstrap, {}, {}), f"{sink.query}-0")
    take_over(zombie, SECONDS)
    zombie.begin_transaction()
    zombie.produce(sink.topic, b"1000")
    zombie.flush(SECONDS)
    # The zombie has fenced the producer of the worker, which takes the transactional id back.
    write(sink.rows(first=10, last=20), 1)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(SECONDS)
    assert sink.values() == list(range(20))


def test_sink_waits_for_a_restarted_broker(sink: Sink, broker: Broker) -> None:
    write = sink.new()
    write(sink.rows(last=10), 0)
    broker.kill9()
    broker.start()
    write(sink.rows(first=10, last=20), 1)
    assert sink.values() == list(range(20))


def test_keys_values_headers_and_partitions_arrive_unchanged(sink: Sink) -> None:
    rows = sink.rows(
        "if(id = 0, null, encode(cast(id as string), 'UTF-8')) as key",
        "if(id = 1, null, concat('value ', id)) as value",
        "if(id = 2, null, array(struct('a' as key, cast('x' as binary) as value))) as headers",
        "if(id = 3, null, 1) as partition",
        last=6,
    )
    sink.new()(rows, 0)
    found = sorted(
        (record.value() or b"", record.key(), record.headers(), record.partition())
        for record in sink.records()
        if record.value() != b"value 3"
    )
    header = [("a", b"x")]
    keys = {number: b"%d" % number for number in range(6)}
    assert found == [
        (b"", keys[1], header, 1),
        (b"value 0", None, header, 1),
        (b"value 2", keys[2], None, 1),
        (b"value 4", keys[4], header, 1),
        (b"value 5", keys[5], header, 1),
    ]


def test_rows_may_lack_keys_and_values(sink: Sink) -> None:
    rows = sink.rows("if(id = 0, null, 'k') as key", "if(id = 1, null, cast(id as string)) as value", last=3)
    sink.new()(rows, 0)
    assert {(record.key(), record.value()) for record in sink.records()} == {
        (None, b"0"),
        (b"k", None),
        (b"k", b"2"),
    }


def test_missing_topic_is_created_with_the_broker_defaults(once: SparkSession, broker: Broker) -> None:
    sink = Sink(once, broker.bootstrap, partitions=0)
    sink.new()(sink.rows(last=10), 0)
    assert sink.values() == list(range(10))


REFUSED: dict[str, Callable[[Sink], DataFrame]] = {
    r"too large; write smaller records": lambda sink: sink.rows(
        "repeat('x', 3000000) as value", last=1, tasks=1
    ),
    r"Unknown partition; write to partitions": lambda sink: sink.rows(
        "'x' as value", "7 as partition", last=1
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_record_is_explained(sink: Sink, reason: str) -> None:
    with pytest.raises(PipelineError, match=f"{sink.query} cannot write to {sink.topic}: .*{reason}"):
        sink.new()(REFUSED[reason](sink), 0)
    assert sink.values() == []


def test_refused_transaction_timeout_is_explained(sink: Sink) -> None:
    write = sink.new(**{"kafka.transaction.timeout.ms": "3600000"})
    with pytest.raises(PipelineError, match=r"; lower kafka.transaction.timeout.ms"):
        write(sink.rows(last=4), 0)


def test_adaptive_plans_are_refused(sink: Sink, spark: SparkSession) -> None:
    adaptive = spark.newSession()
    adaptive.conf.set(ADAPTIVE, "true")
    with pytest.raises(PipelineError, match=f"set {ADAPTIVE} to false"):
        sink.new()(adaptive.range(3).selectExpr("'x' as value"), 0)


def test_security_options_of_spark_apply_to_the_producer() -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": r'org.example.Login required username="ada" password="a\"b";',
        "kafka.fetch.max.wait.ms": "10",
        "maxOffsetsPerTrigger": "10",
    }
    found = client_settings("here:9092", options, {"linger.ms": "7", "spark.sql.shuffle.partitions": "3"})
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (found["sasl.username"], found["sasl.password"]) == ("ada", 'a"b')
    assert found["linger.ms"] == "7"
    assert not {"fetch.max.wait.ms", "maxOffsetsPerTrigger", "spark.sql.shuffle.partitions"} & found.keys()


# With this seed the driver is killed after the first commit of its first batch, and leaves zombies.
SHORT_SEED = 40
SHORT_RUN = {"kills": 1, "records": 480}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_record_is_written_once_when_the_driver_is_killed() -> None:
    with chaos() as play:
        play(SHORT_SEED, **SHORT_RUN)


@pytest.fixture(scope="module")
def play() -> Iterator[Callable[[int], object]]:
    """Plays a seed; the driver stays for the next seed."""
    with chaos() as play:
        yield play


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds(usual=0, soak=10))
def test_every_record_is_written_once_when_processes_are_killed(
    play: Callable[[int], object], seed: int
) -> None:
    play(seed)
