"""Records for tests: written to topics and read back as Python values, as a pipeline declares."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.pipelines.topics.declaration import LogTopic

SECONDS = 30.0
# Clients log emergencies only: errors are raised as exceptions.
QUIET = {"log_level": 2}
NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record; two are equal if their value, key and headers are."""

    value: Any
    key: str | bytes | None = None
    timestamp: datetime | None = field(default=None, compare=False)
    headers: Mapping[str, str | bytes] | tuple[tuple[str, bytes], ...] = ()
    partition: int | None = field(default=None, compare=False)
    topic: str | None = field(default=None, compare=False)
    """The topic to write to, if the input is a pattern of topics."""

    def __post_init__(self) -> None:
        pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        exact = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
        object.__setattr__(self, "headers", exact)


class Output(list[Any]):
    """The values of an output's records, partition by partition; `records` has their keys and headers too."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        super().__init__(record.value for record in self.records)

    @property
    def newest(self) -> dict[Any, Any]:
        """The newest value of each key, as in a table."""
        return {record.key: record.value for record in self.records}


def create_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Create the topics that do not exist, with the broker's default number of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    missing = set(names) - _listed(admin)
    for future in admin.create_topics([NewTopic(name) for name in missing]).values() if missing else ():
        try:
            future.result(SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    # A cluster may list a topic only some time after it has confirmed the creation.
    deadline = time.monotonic() + SECONDS
    while missing := missing - _listed(admin):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bootstrap} created {', '.join(sorted(missing))} but does not list it")
        time.sleep(0.02)


def _listed(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=SECONDS).topics)


def write_records(bootstrap: str, topic: LogTopic, records: Iterable[Any]) -> int:
    """Write values or `Record`s to a topic, and return how many there were."""
    exact = [_encoded(topic, record) for record in records]
    create_topics(bootstrap, {str(record.topic) for record in exact})
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **QUIET})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for record in exact:
        place: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp is not None:
            place["timestamp"] = round(record.timestamp.timestamp() * 1000)
        if record.headers:
            place["headers"] = list(record.headers)
        producer.produce(str(record.topic), record.value, record.key, on_delivery=delivered, **place)
        producer.poll(0)
    if producer.flush(SECONDS) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    return len(exact)


def read_records(bootstrap: str, topic: LogTopic, since: Offsets | None = None) -> Output:
    """The committed records of a topic, all or from these offsets on."""
    since = since or {}
    consumer = _consumer(bootstrap)
    try:
        found = _partitions(consumer, topic)
        wanted = [TopicPartition(*place, since.get(place, OFFSET_BEGINNING)) for place in found]
        messages: dict[tuple[str, int], list[Any]] = {place: [] for place in found}
        reading = set(found)
        consumer.assign(wanted)
        while reading:
            for message in consumer.consume(1000, timeout=0.1):
                place = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    messages[place].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(place)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return Output(_decoded(topic, message) for place in sorted(messages) for message in messages[place])


def end_offsets(bootstrap: str, topic: LogTopic) -> Offsets:
    """The end offset of each partition of a topic."""
    consumer = _consumer(bootstrap)
    try:
        return {place: _end_offset(consumer, place) for place in _partitions(consumer, topic)}
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, place: tuple[str, int]) -> int:
    """The end offset of a partition; a real cluster may still have to elect the leader of a new topic."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(*place), timeout=SECONDS)[1])
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER_YET or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "millrace-testing",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            **QUIET,
        }
    )


def _partitions(consumer: Consumer, topic: LogTopic) -> list[tuple[str, int]]:
    known = consumer.list_topics(timeout=SECONDS).topics.get(topic.name)
    return [(topic.name, number) for number in sorted(known.partitions)] if known and not known.error else []


def _encoded(topic: LogTopic, given: Any) -> Record:
    record = given if isinstance(given, Record) else Record(given)
    value, key = record.value, record.key
    if isinstance(value, dict) and topic.key in value and key is None:
        key = str(value[topic.key])
    name = record.topic or topic.name
    if record.topic is None and (topic.pattern or "," in topic.name):
        raise ValueError(f"{topic.name} is several topics; say which topic: Record({value!r}, topic=...)")
    encoded_key = key.encode() if isinstance(key, str) else key
    return Record(
        _bytes(topic, value), encoded_key, record.timestamp, record.headers, record.partition, topic=name
    )


def _bytes(topic: LogTopic, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str) and topic.format in ("json", "text"):
        # A JSON topic gets the text itself, well-formed or not.
        return value.encode()
    if topic.format == "json":
        return json.dumps(value, default=_plain, ensure_ascii=False).encode()
    # Records with schemas of a registry are given as a serializer framed them.
    takes = "str" if topic.format == "text" else "bytes"
    raise TypeError(f"the records of {topic.name} are {topic.format}: give {takes}, not {value!r}")


def _plain(value: Any) -> Any:
    """Values without a JSON type, in the form that Spark reads."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _decoded(topic: LogTopic, message: Any) -> Record:
    key = message.key()
    if key is not None and topic.format != "bytes":
        key = key.decode(errors="replace")
    return Record(
        _value(topic, message.value()),
        key,
        datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        tuple(message.headers() or ()),
        message.partition(),
        message.topic(),
    )


def _value(topic: LogTopic, value: bytes | None) -> Any:
    if value is None or topic.format not in ("json", "text"):
        return value
    return json.loads(value) if topic.format == "json" else value.decode()
