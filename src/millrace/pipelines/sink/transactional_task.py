"""Writes the rows of one task in one transaction, together with the number of their batch.

This half of the exactly-once sink runs in Spark's Python workers; `exactly_once.py` is the driver's half.
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
from millrace.pipelines.sink.batch_mark import BatchMark, commits_group, transactional_id
from millrace.pipelines.sink.producer import (
    CALL_SECONDS,
    PAUSE_SECONDS,
    REMEDIES,
    SILENCE,
    connection_settings,
    new_producer,
    retry,
    take_over,
    without_errors,
)

# A producer costs three threads and some connections; a worker keeps at most this many.
KEPT_PRODUCERS = 8
# The most bytes in a producer's queue: the memory of a Spark task is not ours to fill.
QUEUE_BYTES = 32 << 20
CHUNK_BYTES = 4 << 20
RECORD_OVERHEAD_BYTES = 100

# Errors of records that were never sent because another one was refused.
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
REASON_SECONDS = 1.0

# The variable in which PySpark's worker keeps the connection to Spark, and the bytes after the last row.
INPUT = "input_data_stream"
END_OF_STREAM = struct.pack("!i", SpecialLengths.END_OF_STREAM)

OUTCOME = pyarrow.schema(
    [("written", pyarrow.int64()), ("skipped", pyarrow.int64()), ("failure", pyarrow.string())]
)
OUTCOME_COLUMNS = "written long, skipped long, failure string"


class TransactionFailed(Exception):
    """A transaction failed. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """One batch of a query to write to a topic; pickled to the workers."""

    query: str
    topic: str
    client: Mapping[str, Any]
    batch: int
    tasks: int
    checkpoint: str

    def task(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Write the rows of this task unless an earlier attempt did; return one row of OUTCOME."""
        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        filled = (rows for rows in batches if rows.num_rows)
        first = next(filled, None)
        if first is None:
            # No other attempt has rows either.
            return
        yield self._outcome(context.partitionId(), chain([first], filled))

    def _outcome(self, task: int, rows: Iterable[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
        written, skipped, failure = 0, 0, None
        try:
            producer = acquire(self, task)
            if producer is None:
                # State stores upstream commit only when they are read to the end.
                skipped = sum(each.num_rows for each in rows)
            else:
                with producer:
                    sent = producer.send(rows)
                    require_whole_input()
                    producer.commit()
                    written = sent
                keep(producer)
        except PipelineError as error:
            # Returned to the driver, not raised: Spark would retry, and wrap the error in a traceback.
            failure = str(error)
        return pyarrow.RecordBatch.from_pylist(
            [{"written": written, "skipped": skipped, "failure": failure}], schema=OUTCOME
        )

    @property
    def timeout_seconds(self) -> float:
        return int(self.client["transaction.timeout.ms"]) / 1000


def require_whole_input() -> None:
    """Raise unless Spark has sent all rows of the task.

    When a task fails, is killed or loses its executor, Spark only closes the connection to the Python worker.
    A stream of Arrow batches that is cut off between two batches then looks complete, and committing it would
    lose rows. The marker that Spark sends after the last batch is still unread at this point.
    """
    frame = sys._getframe()
    while INPUT not in frame.f_locals:
        if frame.f_back is None:
            raise RuntimeError("this PySpark hides its input; install the version that millrace requires")
        frame = frame.f_back
    next_bytes: bytes = frame.f_locals[INPUT].peek(len(END_OF_STREAM))[: len(END_OF_STREAM)]
    if not next_bytes or not END_OF_STREAM.startswith(next_bytes):
        raise TransactionFailed("the rows of the task were cut off; it failed upstream, or was killed")


# Producers

_producers: OrderedDict[tuple[str, str], TaskProducer] = OrderedDict()
"""The producers of this worker by bootstrap servers and transactional id, least recently used first."""


def acquire(write: BatchWrite, task: int) -> TaskProducer | None:
    """Return a producer with an open transaction for the rows of a task; None if they are committed."""
    kept = _producers.pop((write.client["bootstrap.servers"], transactional_id(write.query, task)), None)
    if kept is not None:
        try:
            return _begun(kept, write)
        except (KafkaException, TransactionFailed):
            # Another worker had the task in between. Nothing of this batch was sent, so nothing is lost.
            kept.close()
    return _begun(TaskProducer(write, task), write)


def _begun(producer: TaskProducer, write: BatchWrite) -> TaskProducer | None:
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
    """Keep a producer for the next batch."""
    _producers[producer.key] = producer
    if len(_producers) > KEPT_PRODUCERS:
        _, oldest = _producers.popitem(last=False)
        oldest.close()


class TaskProducer:
    """The transactional producer of one task. As a context manager it aborts the transaction on an error.

    Until it is fenced, no other producer has committed anything for the task, so its mark is up to date.
    """

    def __init__(self, write: BatchWrite, task: int) -> None:
        self.key = (write.client["bootstrap.servers"], transactional_id(write.query, task))
        self._write = write
        self._task = task
        self._delivery_error: KafkaError | None = None
        self._begun_at = 0.0
        self._producer = new_producer(write.client, self.key[1])
        try:
            take_over(self._producer, write.timeout_seconds)
            self.mark = self._read_mark()
        except KafkaException as error:
            self.close()
            raise self.explained(error) from error

    def _read_mark(self) -> BatchMark | None:
        """Read the batch mark of the task. After the takeover no older attempt can change it."""
        settings = connection_settings(self._write.client)
        consumer = Consumer({**settings, "group.id": self._group}, logger=SILENCE)
        try:
            self._member = consumer.consumer_group_metadata()
            wanted = [TopicPartition(self._write.topic, 0)]
            [committed] = retry(
                lambda seconds: without_errors(consumer.committed(wanted, seconds)),
                self._write.timeout_seconds,
            )
            return BatchMark.read(committed)
        finally:
            consumer.close()

    @property
    def _group(self) -> str:
        return commits_group(self._write.query, self._task)

    def begin(self, write: BatchWrite) -> None:
        """Begin a transaction with the batch's number; this raises at once if the producer is fenced."""
        self._write = write
        self._delivery_error = None
        self._begun_at = time.monotonic()
        self._producer.begin_transaction()
        self._next_mark = BatchMark(write.batch + 1, write.tasks, write.checkpoint)
        offset = self._next_mark.as_offset(write.topic)
        retry(
            lambda seconds: self._producer.send_offsets_to_transaction([offset], self._member, seconds),
            write.timeout_seconds,
        )

    def send(self, batches: Iterable[pyarrow.RecordBatch]) -> int:
        """Pass all rows to the client, never more at a time than fit the queue."""
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
        while self._delivery_error is None and len(self._producer) * size > QUEUE_BYTES:
            self._producer.poll(PAUSE_SECONDS)
        if self._delivery_error is not None:
            raise KafkaException(self._delivery_error)

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
        # `produce_batch` accepts no headers and ignores the records' partitions.
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
        # One refused record fails the transaction, and the client purges the records that wait. Their reports
        # may come first, but only the report of the refused record tells the reason.
        if error is not None and (self._delivery_error is None or self._delivery_error.code() in PURGED):
            self._delivery_error = error

    def commit(self) -> None:
        """Commit the transaction, and with it the mark."""
        retry(self._producer.commit_transaction, self._write.timeout_seconds)
        self.mark = self._next_mark

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        explained = error
        with contextlib.suppress(KafkaException):
            if isinstance(error, KafkaException):
                self._await_reason()
                explained = self.explained(error)
            # If this fails too, the next owner of the transactional id aborts the transaction.
            self._producer.abort_transaction(CALL_SECONDS)
        self.close()
        if explained is not error:
            raise explained from error

    def _await_reason(self) -> None:
        """Wait a moment for the report of the record that was refused, if there was one."""
        deadline = time.monotonic() + REASON_SECONDS
        self._producer.poll(0)
        while self._delivery_error is not None and self._delivery_error.code() in PURGED:
            if time.monotonic() > deadline:
                return
            self._producer.poll(PAUSE_SECONDS)

    def close(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.close()

    def explained(self, error: KafkaException) -> Exception:
        """Turn an error into one for the user, or into one that Spark retries."""
        cause: KafkaError = self._delivery_error or error.args[0]
        query, topic = self._write.query, self._write.topic
        if cause.code() in REMEDIES:
            return PipelineError(f"{query} cannot write to {topic}: {cause.str()}; {REMEDIES[cause.code()]}")
        if self._begun_at and time.monotonic() - self._begun_at > self._write.timeout_seconds:
            return PipelineError(
                f"{query} had a transaction on {topic} open for over {self._write.timeout_seconds:.0f} s;"
                " read fewer records per batch (maxOffsetsPerTrigger), or raise kafka.transaction.timeout.ms"
                " in the output's options"
            )
        return TransactionFailed(
            f"task {self._task} of {query} could not write batch {self._write.batch}: {cause}"
        )


def _chunks(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Slices of about CHUNK_BYTES at most, and of one row at least."""
    rows = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
