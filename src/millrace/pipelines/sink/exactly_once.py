"""The exactly-once sink: every task of a batch writes in a transaction that also commits the batch's number.

When a batch is repeated after a failure, the sink finds the tasks that have committed and writes only the
rest. This holds as long as the repeated batch has the same rows in the same tasks. Each row itself determines
its task, out of a number of tasks that is announced before they run. If the number differs the second time
and some tasks have committed, the run is refused. Only the user's code can guarantee that the rows are equal.

This half runs in the driver; `transactional_task.py` is the half in the tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.sink.batch_mark import BatchMark, commits_group, transactional_id
from millrace.pipelines.sink.producer import (
    CALL_SECONDS,
    PRODUCER_SETTINGS,
    REMEDIES,
    SILENCE,
    connection_settings,
    new_producer,
    retry,
    take_over,
    without_errors,
)
from millrace.pipelines.sink.transactional_task import OUTCOME_COLUMNS, BatchWrite
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("key", "value", "headers", "partition")
# The group in which the driver announces the number of tasks of a batch.
ANNOUNCEMENT = "announced"
# The thread property in which Spark keeps the id of the checkpoint.
CHECKPOINT_PROPERTY = "sql.streaming.queryId"

# Adaptive plans distribute rows to tasks by runtime statistics.
ADAPTIVE = "spark.sql.adaptive.enabled"

# Options of Spark's Kafka sink that mean the same to librdkafka.
SHARED_OPTIONS = re.compile(
    r"security\.protocol|sasl\.(mechanism|kerberos\.service\.name)|ssl\.(keystore|key|ca|certificate)\..*"
    r"|compression\.type|linger\.ms|batch\.size|transaction\.timeout\.ms|client\.id"
)
JAAS_CONFIG = "sasl.jaas.config"


class ExactlyOnce:
    """Writes the batches of one query to a topic; pass it to `foreachBatch`.

    Spark calls it in the thread of the query. `settings` are librdkafka's and override ours; settings of
    Spark are ignored.
    """

    def __init__(
        self, query: str, topic: LogTopic, bootstrap: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._query = query
        self._topic = topic.name
        self._client = client_settings(bootstrap, topic.options, settings or {})
        self._admin: AdminClient | None = None
        self._finished: BatchMark | None = None
        """The mark of the last batch, if this object wrote that batch completely."""
        self.written = 0
        """The number of rows written so far."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if frame.sparkSession.conf.get(ADAPTIVE) == "true":
            raise PipelineError(
                f"{self._query} would not have the same tasks if a batch were repeated;"
                f' set {ADAPTIVE} to false, or declare delivery="at-least-once"'
            )
        tasks = frame.rdd.getNumPartitions()
        if tasks == 0:
            return
        checkpoint = frame.sparkSession.sparkContext.getLocalProperty(CHECKPOINT_PROPERTY) or ""
        write = BatchWrite(self._query, self._topic, self._client, batch, tasks, checkpoint)
        self._prepare(write)
        columns = [name for name in COLUMNS if name in frame.columns]
        rows = frame.select(*columns)
        if tasks > 1:
            # The task of a row must follow from the row alone: when a batch is repeated, Spark's Kafka source
            # assigns partitions to tasks in another order. Rows of one task stay in order.
            rows = rows.repartition(tasks, _distribution(columns))
        # Run even if every task has committed: only running the batch advances state and watermarks.
        outcomes = rows.mapInArrow(write.task, OUTCOME_COLUMNS).collect()
        for outcome in outcomes:
            if outcome.failure is not None:
                raise PipelineError(outcome.failure)
        self._finished = BatchMark(batch + 1, tasks, checkpoint)
        self.written += sum(outcome.written for outcome in outcomes)

    def _prepare(self, write: BatchWrite) -> None:
        announced = self._finished
        # Until this batch is complete, only the log knows what is written.
        self._finished = None
        try:
            if announced is None or announced.next_batch != write.batch:
                self._ensure_topic()
                announced = self._resume(write)
            if announced is None or (announced.tasks, announced.checkpoint) != (
                write.tasks,
                write.checkpoint,
            ):
                self._announce(BatchMark(write.batch, write.tasks, write.checkpoint))
        except KafkaException as error:
            raise self._explained(error) from error
        finally:
            # Few batches need the client, and Spark keeps this object, and so the client, after the query.
            self._admin = None

    # Resuming

    def _resume(self, write: BatchWrite) -> BatchMark | None:
        """Return the last announcement; raise if this batch cannot be written after it."""
        announced = self._marks([ANNOUNCEMENT]).get(ANNOUNCEMENT)
        if announced is None or announced.checkpoint != write.checkpoint:
            return None
        tasks = range(max(announced.tasks, write.tasks))
        differs = announced.tasks != write.tasks
        if differs:
            # Tasks of an earlier run that this run does not have may still be writing.
            self._fence(tasks)
        for mark in self._marks(tasks).values():
            if not mark.covers(write.batch, write.checkpoint):
                continue
            if mark.next_batch > write.batch + 1:
                raise PipelineError(
                    f"{self._query} is about to write batch {write.batch}, but {self._topic} already has its"
                    f" batches up to {mark.next_batch - 1}: the checkpoint is an old copy; restore the newest"
                    " one, or start with a new checkpoint, which writes all of the input again"
                )
            if differs:
                raise PipelineError(
                    f"{self._query} has written a part of batch {write.batch} with {mark.tasks} tasks and now"
                    f" has {write.tasks}: it cannot tell which part; run it with its former settings"
                    " (spark.sql.shuffle.partitions, minPartitions of its inputs) until the batch is written,"
                    " or start with a new checkpoint, which writes all of the input again"
                )
        return announced

    def _fence(self, tasks: Iterable[int]) -> None:
        producers = [new_producer(self._client, transactional_id(self._query, task)) for task in tasks]
        try:
            for producer in producers:
                take_over(producer, self._timeout_seconds)
        finally:
            for producer in producers:
                producer.close()

    def _marks(self, tasks: Iterable[int | str]) -> dict[int | str, BatchMark]:
        return marks(self._connected(), self._query, tasks, self._topic, self._timeout_seconds)

    def _announce(self, mark: BatchMark) -> None:
        group = commits_group(self._query, ANNOUNCEMENT)

        def announce(seconds: float) -> None:
            offsets = [ConsumerGroupTopicPartitions(group, [mark.as_offset(self._topic)])]
            [response] = (
                self._connected().alter_consumer_group_offsets(offsets, request_timeout=seconds).values()
            )
            without_errors(response.result().topic_partitions)

        retry(announce, self._timeout_seconds)

    # The topic

    def _ensure_topic(self) -> None:
        """Create the topic with the broker's defaults unless it exists."""

        def ensure(seconds: float) -> None:
            admin = self._connected()
            found = admin.list_topics(self._topic, timeout=seconds).topics[self._topic]
            if found.error is None:
                return
            if found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(found.error)
            new = NewTopic(self._topic, num_partitions=-1, replication_factor=-1)
            try:
                admin.create_topics([new], request_timeout=seconds)[self._topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        retry(ensure, self._timeout_seconds)

    # The client

    @property
    def _timeout_seconds(self) -> float:
        return int(self._client["transaction.timeout.ms"]) / 1000

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(connection_settings(self._client), logger=SILENCE)
        return self._admin

    def _explained(self, error: KafkaException) -> Exception:
        cause: KafkaError = error.args[0]
        if cause.code() not in REMEDIES:
            return error
        return PipelineError(
            f"{self._query} cannot write to {self._topic}: {cause.str()}; {REMEDIES[cause.code()]}"
        )


def _distribution(columns: list[str]) -> Column:
    """The column that decides the task of a row: the partition if given, else the key, else the value."""
    from pyspark.sql.functions import coalesce, col

    known = [name for name in ("partition", "key", "value") if name in columns]
    return coalesce(*(col(name).cast("string").cast("binary") for name in known))


def committed_batches(bootstrap: str, query: str, tasks: int) -> dict[int, int]:
    """The number of the last batch that each task has committed; tasks without one are left out."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=SILENCE)
    found = marks(admin, query, range(tasks))
    return {int(task): mark.next_batch - 1 for task, mark in found.items()}


def marks(
    admin: AdminClient,
    query: str,
    tasks: Iterable[int | str],
    topic: str | None = None,
    timeout_seconds: float = CALL_SECONDS,
) -> dict[int | str, BatchMark]:
    """The batch marks of tasks on a topic, or on any topic."""
    groups = {task: commits_group(query, task) for task in tasks}
    partitions = None if topic is None else [TopicPartition(topic, 0)]

    def look_up(seconds: float) -> dict[int | str, BatchMark]:
        # Open transactions do not delay this request: callers that need their outcome settle them before.
        responses = {
            task: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=seconds
            )[group]
            for task, group in groups.items()
        }
        found: dict[int | str, BatchMark] = {}
        for task, response in responses.items():
            for committed in without_errors(response.result().topic_partitions):
                if (mark := BatchMark.read(committed)) is not None:
                    found[task] = mark
        return found

    return retry(look_up, timeout_seconds)


def client_settings(
    bootstrap: str, options: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, Any]:
    """The settings of a producer in librdkafka's terms, including the options of Spark's Kafka sink."""
    ours: dict[str, Any] = {**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap}
    for option, value in options.items():
        name = option.removeprefix("kafka.")
        if name == JAAS_CONFIG:
            ours |= _credentials(value)
        elif SHARED_OPTIONS.fullmatch(name):
            ours[name] = value
    return ours | {name: value for name, value in settings.items() if not name.startswith("spark.")}


def _credentials(jaas: str) -> dict[str, str]:
    """The user and password of a Java client's JAAS line."""
    pairs = re.findall(r'(username|password)="((?:[^"\\]|\\.)*)"', jaas)
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in pairs}
