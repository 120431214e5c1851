"""Offsets of topics and of consumer groups, and how far behind a query is, for every Kafka tool to see.

Spark keeps the offsets of a query in its checkpoint, where no Kafka tool looks. `Progress` commits them to
the consumer group of the query's name, without ever joining the group and without holding the query up.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millrace.pipelines.errors import BrokerAway, PipelineError

Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""

REQUEST_SECONDS = 10.0
AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._DESTROY,
}
RETRY_SECONDS = 2.0


def admin(bootstrap: str, settings: Mapping[str, str] | None = None) -> AdminClient:
    """A client that stays quiet about brokers that are away."""
    # Its own words about connections go nowhere: whoever asks gets an error, and says it once.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **(settings or {})}, logger=_SILENCE)


def partitions(client: AdminClient, topics: Iterable[str]) -> dict[str, list[int]]:
    """The partitions of each topic; a topic that is not there has none."""
    wanted = list(topics)
    found = client.list_topics(timeout=REQUEST_SECONDS).topics
    return {topic: sorted(found[topic].partitions) if topic in found else [] for topic in wanted}


def start_offsets(bootstrap: str, topics: Iterable[str]) -> Offsets:
    """The oldest offset that each partition still holds."""
    return _offsets(bootstrap, topics, OffsetSpec.earliest())


def end_offsets(bootstrap: str, topics: Iterable[str], *, client: AdminClient | None = None) -> Offsets:
    """The offset that each partition's next record will get."""
    return _offsets(bootstrap, topics, OffsetSpec.latest(), client)


def stable_offsets(bootstrap: str, topics: Iterable[str]) -> Offsets:
    """The end of each partition for who reads committed records: no open transaction lies before it."""
    return _offsets(bootstrap, topics, OffsetSpec.latest(), isolation=IsolationLevel.READ_COMMITTED)


def offsets_at(bootstrap: str, topics: Iterable[str], time: datetime) -> Offsets:
    """The first offset of each partition at or after a time; its end where there is none."""
    wanted = list(topics)
    found = _offsets(bootstrap, wanted, OffsetSpec.for_timestamp(int(time.timestamp() * 1000)))
    ends = end_offsets(bootstrap, wanted)
    return {
        topic: {
            partition: ends[topic][partition] if offset < 0 else offset for partition, offset in of.items()
        }
        for topic, of in found.items()
    }


def group_offsets(bootstrap: str, group: str, topics: Iterable[str]) -> Offsets:
    """What a group has committed for these topics; partitions it has committed nothing for are left out."""
    client = admin(bootstrap)
    with _explained(bootstrap):
        asked = [
            TopicPartition(topic, partition)
            for topic, numbers in partitions(client, topics).items()
            for partition in numbers
        ]
        request = [ConsumerGroupTopicPartitions(group, asked)]
        [answer] = client.list_consumer_group_offsets(request, request_timeout=REQUEST_SECONDS).values()
        found: Offsets = {}
        for place in answer.result().topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset >= 0:
                found.setdefault(place.topic, {})[place.partition] = place.offset
        return found


def lag(bootstrap: str, reached: Mapping[str, Mapping[int, int]]) -> int:
    """How many records lie between these offsets and the ends of their partitions."""
    ends = end_offsets(bootstrap, reached)
    return behind(reached, ends)


def behind(reached: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]) -> int:
    """How many records lie between offsets and ends; a partition not reached yet counts whole."""
    return sum(
        max(0, end - reached.get(topic, {}).get(partition, 0))
        for topic, of in ends.items()
        for partition, end in of.items()
    )


def topic_ids(bootstrap: str, topics: Iterable[str]) -> dict[str, str]:
    """The id of each topic that exists; a topic that is deleted and made again gets another one."""
    client = admin(bootstrap)
    with _explained(bootstrap):
        found: dict[str, str] = {}
        names = list(topics)
        if not names:
            return found
        asked = client.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
        for topic, answer in asked.items():
            with contextlib.suppress(KafkaException):
                found[topic] = str(answer.result().topic_id)
        return found


def cluster_id(bootstrap: str) -> str:
    """The id of the cluster that answers there."""
    with _explained(bootstrap):
        # The answer does not come if nobody holds on to the client.
        client = admin(bootstrap)
        return str(client.describe_cluster(request_timeout=REQUEST_SECONDS).result().cluster_id)


def matching(bootstrap: str, pattern: str) -> list[str]:
    """The topics whose whole name a pattern matches."""
    with _explained(bootstrap):
        found = admin(bootstrap).list_topics(timeout=REQUEST_SECONDS).topics
        return sorted(topic for topic in found if re.fullmatch(pattern, topic))


def parse(offsets: Any) -> Offsets:
    """Offsets as Spark writes them: JSON of partitions by topic."""
    parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {
        topic: {int(partition): int(offset) for partition, offset in of.items()}
        for topic, of in (parsed or {}).items()
    }


def reached(progress: Any) -> Offsets:
    """The offsets behind the last record that a batch has read, from Spark's report on it."""
    merged: Offsets = {}
    for source in progress.sources:
        # Only Kafka's offsets look like this; a query may have other sources too.
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            for topic, of in parse(source.endOffset).items():
                # Two inputs may read one topic: the group stands where the slower one does.
                known = merged.setdefault(topic, {})
                for partition, offset in of.items():
                    known[partition] = min(offset, known.get(partition, offset))
    return merged


class Commits:
    """Commits offsets to groups from a thread of its own; what fails is tried again later."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        self._client = admin(bootstrap, settings)
        self._waiting: dict[str, Offsets] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="millrace-commits", daemon=True)
        self._thread.start()

    def put(self, group: str, offsets: Offsets) -> None:
        """Have these offsets committed; newer ones of the same group replace those that still wait."""
        with self._changed:
            self._waiting[group] = offsets
            self._changed.notify_all()

    def close(self) -> None:
        """Commit what waits, if the broker is there, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(2 * REQUEST_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                taken, self._waiting = self._waiting, {}
            failed = {group: offsets for group, offsets in taken.items() if not self._commit(group, offsets)}
            with self._changed:
                if failed and self._closed:
                    return
                self._waiting = failed | self._waiting
                if failed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)

    def _commit(self, group: str, offsets: Offsets) -> bool:
        places = [
            TopicPartition(topic, partition, offset)
            for topic, of in offsets.items()
            for partition, offset in of.items()
            if offset >= 0 or offset == OFFSET_BEGINNING
        ]
        if not places:
            return True
        try:
            [answer] = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, places)], request_timeout=REQUEST_SECONDS
            ).values()
            return all(place.error is None for place in answer.result().topic_partitions)
        except KafkaException:
            return False


class Progress(StreamingQueryListener):
    """Hears of every batch of the queries it knows: commits its offsets, and tells who else wants to know.

    `queries` are group names by query name; other queries of the session are none of its business.
    """

    def __init__(
        self, commits: Commits, queries: Iterable[str], on_progress: Callable[[Any], None] | None = None
    ) -> None:
        self._commits = commits
        self._queries = frozenset(queries)
        self._on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.record(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def record(self, progress: Any) -> None:
        """Take note of a batch."""
        if progress.name not in self._queries:
            return
        if found := reached(progress):
            self._commits.put(progress.name, found)
        if self._on_progress is not None:
            self._on_progress(progress)


def _offsets(
    bootstrap: str,
    topics: Iterable[str],
    spec: Any,
    client: AdminClient | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Offsets:
    client = client or admin(bootstrap)
    with _explained(bootstrap):
        found: Offsets = {}
        asked: dict[TopicPartition, Any] = {}
        for topic, numbers in partitions(client, topics).items():
            if not numbers:
                raise PipelineError(
                    f"there is no topic {topic} at {bootstrap};"
                    f" `millrace topics --create --topic {topic}` makes it"
                )
            asked |= {TopicPartition(topic, partition): spec for partition in numbers}
        for place, answer in client.list_offsets(
            asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS
        ).items():
            found.setdefault(place.topic, {})[place.partition] = answer.result().offset
        return found


@contextlib.contextmanager
def _explained(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() in AWAY or cause.retriable():
            raise BrokerAway(
                f"the broker at {bootstrap} does not answer ({cause.str()});"
                " start it, or give another one with --bootstrap-server"
            ) from error
        raise PipelineError(
            f"the broker at {bootstrap} refuses ({cause.str()}); see that this user may do it"
        ) from error


def _silence() -> logging.Logger:
    logger = logging.getLogger("millrace.pipelines.kafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


_SILENCE = _silence()
