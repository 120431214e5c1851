"""The exactly-once sink: every task of a batch writes in a transaction that also keeps the batch's number.

A batch that is run again, after whatever failed, finds the tasks that have committed and writes only the
rest. That holds as long as it has the same rows in the same tasks as before. A row itself says which task is
its own, of as many as are announced before they run; if their number is another one the second time, and some
have committed, the run is refused. Whether the rows are the same, only the user's code can see to.

This half runs in the driver; `transactional_task.py` is the half in the tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import LogTopic
from millrace.pipelines.transactional_task import OUTCOME_COLUMNS, Write
from millrace.pipelines.transactions import (
    CALL_SECONDS,
    PRODUCER_SETTINGS,
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

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("key", "value", "headers", "partition")
# The group in which the driver announces how many tasks a batch has.
ANNOUNCEMENT = "announced"
# Spark's name for the id that is kept in the checkpoint, in the properties of the query's thread.
CHECKPOINT_PROPERTY = "sql.streaming.queryId"

# Adaptive plans divide the rows among tasks by how a run happens to go.
ADAPTIVE = "spark.sql.adaptive.enabled"

# Options of Spark's Kafka sink that mean the same to librdkafka.
SHARED_OPTIONS = re.compile(
    r"security\.protocol|sasl\.(mechanism|kerberos\.service\.name)|ssl\.(keystore|key|ca|certificate)\..*"
    r"|compression\.type|linger\.ms|batch\.size|transaction\.timeout\.ms|client\.id"
)
JAAS_CONFIG = "sasl.jaas.config"


class ExactlyOnce:
    """Writes the batches of one query to a topic; hand it to `foreachBatch`.

    Called in the thread of its query. `settings` are librdkafka's, and go before ours; Spark's are left out.
    """

    def __init__(
        self, query: str, topic: LogTopic, bootstrap: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._query = query
        self._topic = topic.name
        self._client = client_settings(bootstrap, topic.options, settings or {})
        self._admin: AdminClient | None = None
        self._finished: Mark | None = None
        """What the last batch left behind, if that batch was written by this object and to the end."""
        self.written = 0
        """How many rows have gone to the log so far."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if frame.sparkSession.conf.get(ADAPTIVE) == "true":
            raise PipelineError(
                f"{self._query} would not have the same tasks if a batch were run again;"
                f' set {ADAPTIVE} to false, or declare delivery="at-least-once"'
            )
        tasks = frame.rdd.getNumPartitions()
        if tasks == 0:
            return
        checkpoint = frame.sparkSession.sparkContext.getLocalProperty(CHECKPOINT_PROPERTY) or ""
        write = Write(self._query, self._topic, self._client, batch, tasks, checkpoint)
        self._prepare(write)
        columns = [name for name in COLUMNS if name in frame.columns]
        rows = frame.select(*columns)
        if tasks > 1:
            # Which task gets a row must follow from the row alone: Spark's Kafka source deals partitions to
            # tasks in another order when a batch is run again. What came from one task stays in order.
            rows = rows.repartition(tasks, _place(columns))
        # Not skipped even if every task has committed: only running it moves state and watermarks on.
        outcomes = rows.mapInArrow(write.task, OUTCOME_COLUMNS).collect()
        for outcome in outcomes:
            if outcome.failure is not None:
                raise PipelineError(outcome.failure)
        self._finished = Mark(batch + 1, tasks, checkpoint)
        self.written += sum(outcome.written for outcome in outcomes)

    def _prepare(self, write: Write) -> None:
        announced = self._finished
        # Until this batch is through, all that is known is what the log says.
        self._finished = None
        if announced is None or announced.next_batch != write.batch:
            try:
                self._find_topic()
                announced = self._resume(write)
            except KafkaException as error:
                raise self._explained(error) from error
        if announced is None or (announced.tasks, announced.checkpoint) != (write.tasks, write.checkpoint):
            self._announce(Mark(write.batch, write.tasks, write.checkpoint))

    # Resuming

    def _resume(self, write: Write) -> Mark | None:
        """What was announced last, once it is sure that this batch can be written after it."""
        announced = self._marks([ANNOUNCEMENT]).get(ANNOUNCEMENT)
        if announced is None or announced.checkpoint != write.checkpoint:
            return None
        tasks = range(max(announced.tasks, write.tasks))
        differs = announced.tasks != write.tasks
        if differs:
            # Tasks of an earlier life that this one does not have could still be at it.
            self._fence(tasks)
        for mark in self._marks(tasks).values():
            if not mark.covers(write.batch, write.checkpoint):
                continue
            if mark.next_batch > write.batch + 1:
                raise PipelineError(
                    f"{self._query} is to write batch {write.batch}, and {self._topic} has its batches up to"
                    f" {mark.next_batch - 1} already: the checkpoint is an old copy; put back the newest one,"
                    " or begin with a new checkpoint, which writes all of the input again"
                )
            if differs:
                raise PipelineError(
                    f"{self._query} has written a part of batch {write.batch} with {mark.tasks} tasks and now"
                    f" has {write.tasks}: which part cannot be told; run it with the settings it had"
                    " (spark.sql.shuffle.partitions, minPartitions of its inputs) until the batch is through,"
                    " or begin with a new checkpoint, which writes all of the input again"
                )
        return announced

    def _fence(self, tasks: Iterable[int]) -> None:
        producers = [new_producer(self._client, transactional_id(self._query, task)) for task in tasks]
        try:
            for producer in producers:
                take_over(producer, self._patience)
        finally:
            for producer in producers:
                producer.close()

    def _marks(self, tasks: Iterable[int | str]) -> dict[int | str, Mark]:
        return marks(self._connected(), self._query, tasks, self._topic, self._patience)

    def _announce(self, mark: Mark) -> None:
        group = commits_group(self._query, ANNOUNCEMENT)

        def announce(seconds: float) -> None:
            places = [ConsumerGroupTopicPartitions(group, [mark.at(self._topic)])]
            [answer] = (
                self._connected().alter_consumer_group_offsets(places, request_timeout=seconds).values()
            )
            settled(answer.result().topic_partitions)

        try:
            patiently(announce, self._patience)
        except KafkaException as error:
            raise self._explained(error) from error

    # The topic

    def _find_topic(self) -> None:
        """See that the topic is there; made by us it gets the broker's defaults."""

        def find(seconds: float) -> None:
            admin = self._connected()
            found = admin.list_topics(self._topic, timeout=seconds).topics[self._topic]
            if found.error is None:
                return
            if found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(found.error)
            made = NewTopic(self._topic, num_partitions=-1, replication_factor=-1)
            try:
                admin.create_topics([made], request_timeout=seconds)[self._topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        patiently(find, self._patience)

    # The client

    @property
    def _patience(self) -> float:
        return int(self._client["transaction.timeout.ms"]) / 1000

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(connection(self._client), logger=SILENCE)
        return self._admin

    def _explained(self, error: KafkaException) -> Exception:
        cause: KafkaError = error.args[0]
        if cause.code() not in REMEDIES:
            return error
        return PipelineError(
            f"{self._query} cannot write to {self._topic}: {cause.str()}; {REMEDIES[cause.code()]}"
        )


def _place(columns: list[str]) -> Column:
    """What decides which task writes a row: the partition that it asks for, else its key, else its value."""
    from pyspark.sql.functions import coalesce, col

    known = [name for name in ("partition", "key", "value") if name in columns]
    return coalesce(*(col(name).cast("string").cast("binary") for name in known))


def committed(bootstrap: str, query: str, tasks: int) -> dict[int, int]:
    """The number of the last batch that each task has committed; tasks without any are left out."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=SILENCE)
    found = marks(admin, query, range(tasks))
    return {int(task): mark.next_batch - 1 for task, mark in found.items()}


def marks(
    admin: AdminClient,
    query: str,
    tasks: Iterable[int | str],
    topic: str | None = None,
    patience: float = CALL_SECONDS,
) -> dict[int | str, Mark]:
    """How far tasks have come on a topic, or on any."""
    wanted = list(tasks)
    places = None if topic is None else [TopicPartition(topic, 0)]

    def look_up(seconds: float) -> dict[int | str, Mark]:
        # An open transaction does not hold this up: whoever has to know its end has settled it before.
        answers = {
            task: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(commits_group(query, task), places)], request_timeout=seconds
            )[commits_group(query, task)]
            for task in wanted
        }
        found: dict[int | str, Mark] = {}
        for task, answer in answers.items():
            for place in settled(answer.result().topic_partitions):
                if (mark := Mark.of(place)) is not None:
                    found[task] = mark
        return found

    return patiently(look_up, patience)


def client_settings(
    bootstrap: str, options: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, Any]:
    """A producer's settings in librdkafka's words, those that Spark's Kafka sink would take among them."""
    ours: dict[str, Any] = {**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap}
    for option, value in options.items():
        name = option.removeprefix("kafka.")
        if name == JAAS_CONFIG:
            ours |= _credentials(value)
        elif SHARED_OPTIONS.fullmatch(name):
            ours[name] = value
    return ours | {name: value for name, value in settings.items() if not name.startswith("spark.")}


def _credentials(jaas: str) -> dict[str, str]:
    """The user and password that a Java client takes from one line."""
    pairs = re.findall(r'(username|password)="((?:[^"\\]|\\.)*)"', jaas)
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in pairs}
