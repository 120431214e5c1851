"""One task's rows into the log in one transaction, together with the number of their batch.

This half of the exactly-once sink runs in Spark's Python workers; `exactly_once.py` is that in the driver.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import pyarrow
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.transactions import (
    CALL_SECONDS,
    PAUSE_SECONDS,
    REMEDIES,
    SILENCE,
    Mark,
    commits_group,
    connection,
    new_producer,
    patiently,
    settled,
    take_over,
    transactional_id,
)

# A producer is three threads and some connections; a worker has this many at hand.
KEPT_PRODUCERS = 8
# What may wait in a producer's queue; a Spark task's memory is not ours to fill.
QUEUE_BYTES = 32 << 20
CHUNK_BYTES = 4 << 20
RECORD_OVERHEAD_BYTES = 100

# Where PySpark's worker keeps the connection to Spark, and what follows there upon the last row.
INPUT = "input_data_stream"
END_OF_STREAM = struct.pack("!i", SpecialLengths.END_OF_STREAM)

OUTCOME = pyarrow.schema(
    [("written", pyarrow.int64()), ("skipped", pyarrow.int64()), ("failure", pyarrow.string())]
)
OUTCOME_COLUMNS = "written long, skipped long, failure string"


class Failed(Exception):
    """A transaction came to nothing; trying again may help."""


@dataclass(frozen=True, slots=True)
class Write:
    """One batch of a query, on its way into a topic; sent to the workers as it is."""

    query: str
    topic: str
    client: Mapping[str, Any]
    batch: int
    tasks: int
    checkpoint: str

    def task(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Write the rows of this task, unless an earlier attempt has; answer with one row of OUTCOME."""
        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        filled = (rows for rows in batches if rows.num_rows)
        first = next(filled, None)
        if first is None:
            # Neither has any other attempt something to write.
            return
        yield self._outcome(context.partitionId(), chain([first], filled))

    def _outcome(self, task: int, rows: Iterable[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
        written, skipped, failure = 0, 0, None
        try:
            producer = take(self, task)
            if producer is None:
                # State stores upstream commit only when they have been read to the end.
                skipped = sum(each.num_rows for each in rows)
            else:
                with producer:
                    sent = producer.send(rows)
                    require_whole_input()
                    producer.commit()
                    written = sent
                keep(producer)
        except PipelineError as error:
            # Handed to the driver rather than raised: Spark would try again, and wrap it in a traceback.
            failure = str(error)
        return pyarrow.RecordBatch.from_pylist(
            [{"written": written, "skipped": skipped, "failure": failure}], schema=OUTCOME
        )

    @property
    def timeout_seconds(self) -> float:
        return int(self.client["transaction.timeout.ms"]) / 1000


def require_whole_input() -> None:
    """Fail unless Spark has said that the task's rows are all there.

    When a task fails, is killed or loses its executor, Spark only closes the connection to its Python worker,
    and a stream of Arrow batches that is cut off between two of them looks like one that has ended. Nothing
    may be committed then. What Spark sends after the last batch of a whole stream is still unread here.
    """
    frame = sys._getframe()
    while INPUT not in frame.f_locals:
        if frame.f_back is None:
            raise RuntimeError("this version of PySpark hides its input; use the one that millrace requires")
        frame = frame.f_back
    follows: bytes = frame.f_locals[INPUT].peek(len(END_OF_STREAM))[: len(END_OF_STREAM)]
    if not follows or not END_OF_STREAM.startswith(follows):
        raise Failed("the task's rows were cut off; it failed upstream, or was killed")


# Producers

_producers: OrderedDict[tuple[str, str], TaskProducer] = OrderedDict()
"""Of this worker, by bootstrap servers and transactional id; the least recently used first."""


def take(write: Write, task: int) -> TaskProducer | None:
    """A producer with a transaction begun for a task's rows; None if they are committed already."""
    kept = _producers.pop((write.client["bootstrap.servers"], transactional_id(write.query, task)), None)
    if kept is not None:
        try:
            return _begun(kept, write)
        except (KafkaException, Failed):
            # Another worker has had the task since; nothing of this batch is lost, for nothing was sent.
            kept.close()
    return _begun(TaskProducer(write, task), write)


def _begun(producer: TaskProducer, write: Write) -> TaskProducer | None:
    if producer.mark is not None and producer.mark.covers(write.batch, write.checkpoint):
        keep(producer)
        return None
    try:
        producer.begin(write)
    except KafkaException as error:
        producer.close()
        raise producer.explained(error) from error
    return producer


def keep(producer: TaskProducer) -> None:
    """Have a producer at hand for the next batch."""
    _producers[producer.key] = producer
    if len(_producers) > KEPT_PRODUCERS:
        _, oldest = _producers.popitem(last=False)
        oldest.close()


class TaskProducer:
    """The transactional producer of one task; as a context manager, what fails inside is undone.

    As long as it is not fenced, nobody else has committed anything for the task: what it knows is true.
    """

    def __init__(self, write: Write, task: int) -> None:
        self.key = (write.client["bootstrap.servers"], transactional_id(write.query, task))
        self._write = write
        self._task = task
        self._refused: KafkaError | None = None
        self._begun_at = 0.0
        self._producer = new_producer(write.client, self.key[1])
        try:
            take_over(self._producer, write.timeout_seconds)
            self.mark = self._look_up()
        except KafkaException as error:
            self.close()
            raise self.explained(error) from error

    def _look_up(self) -> Mark | None:
        """How far the task has come; asked after the takeover, when no older attempt can add to it."""
        consumer = Consumer({**connection(self._write.client), "group.id": self._group}, logger=SILENCE)
        try:
            self._member = consumer.consumer_group_metadata()
            asked = [TopicPartition(self._write.topic, 0)]
            [place] = patiently(
                lambda seconds: settled(consumer.committed(asked, seconds)), self._write.timeout_seconds
            )
            return Mark.of(place)
        finally:
            consumer.close()

    @property
    def _group(self) -> str:
        return commits_group(self._write.query, self._task)

    def begin(self, write: Write) -> None:
        """Begin a transaction with the batch's number, which tells at once if this producer is fenced."""
        self._write = write
        self._refused = None
        self._begun_at = time.monotonic()
        self._producer.begin_transaction()
        self._next = Mark(write.batch + 1, write.tasks, write.checkpoint)
        place = self._next.at(write.topic)
        patiently(
            lambda seconds: self._producer.send_offsets_to_transaction([place], self._member, seconds),
            write.timeout_seconds,
        )

    def send(self, batches: Iterable[pyarrow.RecordBatch]) -> int:
        """Hand all rows to the client, never more at a time than fits the queue."""
        written = 0
        for batch in batches:
            for chunk in _chunks(batch):
                self._await_room(chunk)
                if {"headers", "partition"} & set(chunk.schema.names):
                    self._send_one_by_one(chunk)
                else:
                    self._send_at_once(chunk)
                self._producer.poll(0)
            written += batch.num_rows
        return written

    def _await_room(self, chunk: pyarrow.RecordBatch) -> None:
        size = chunk.nbytes // chunk.num_rows + RECORD_OVERHEAD_BYTES
        while self._refused is None and len(self._producer) * size > QUEUE_BYTES:
            self._producer.poll(PAUSE_SECONDS)
        if self._refused is not None:
            raise KafkaException(self._refused)

    def _send_at_once(self, chunk: pyarrow.RecordBatch) -> None:
        values = chunk.column("value").to_pylist()
        rows: list[dict[str, Any]]
        if "key" in chunk.schema.names:
            keys = chunk.column("key").to_pylist()
            rows = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        else:
            rows = [{"value": value} for value in values]
        if self._producer.produce_batch(self._write.topic, rows, on_delivery=self._delivered) != len(rows):
            raise KafkaException(next(row["_error"] for row in rows if "_error" in row))

    def _send_one_by_one(self, chunk: pyarrow.RecordBatch) -> None:
        # The client takes no headers for many records at once, and does not heed their partitions.
        for row in chunk.to_pylist():
            self._producer.produce(
                self._write.topic,
                row["value"],
                row.get("key"),
                partition=-1 if row.get("partition") is None else row["partition"],
                headers=[(header["key"], header["value"]) for header in row.get("headers") or ()],
                on_delivery=self._delivered,
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        # What follows the first failure is only swept away with it.
        if error is not None and self._refused is None:
            self._refused = error

    def commit(self) -> None:
        patiently(self._producer.commit_transaction, self._write.timeout_seconds)
        self.mark = self._next

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        explained = error
        with contextlib.suppress(KafkaException):
            # The reason why a record was refused may have come in meanwhile.
            self._producer.poll(0)
            if isinstance(error, KafkaException):
                explained = self.explained(error)
            # If this fails too, the next owner of the transactional id undoes it.
            self._producer.abort_transaction(CALL_SECONDS)
        self.close()
        if explained is not error:
            raise explained from error

    def close(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.close()

    def explained(self, error: KafkaException) -> Exception:
        """Why it failed: something to mend, or something to try again."""
        cause: KafkaError = self._refused or error.args[0]
        query, topic = self._write.query, self._write.topic
        if cause.code() in REMEDIES:
            return PipelineError(f"{query} cannot write to {topic}: {cause.str()}; {REMEDIES[cause.code()]}")
        if self._begun_at and time.monotonic() - self._begun_at > self._write.timeout_seconds:
            return PipelineError(
                f"{query} had a transaction on {topic} open for over {self._write.timeout_seconds:.0f} s;"
                " take fewer records per batch (maxOffsetsPerTrigger), or raise kafka.transaction.timeout.ms"
                " in the output's options"
            )
        return Failed(f"task {self._task} of {query} could not write batch {self._write.batch}: {cause}")


def _chunks(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Slices of at most CHUNK_BYTES or so, and of one row at least."""
    rows = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
