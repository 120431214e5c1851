"""Topics that pipelines make, read whole and delete for themselves."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ConfigSource, NewTopic, ResourceType

from millrace.pipelines import offsets
from millrace.pipelines.errors import PipelineError

COMPACTED = {"cleanup.policy": "compact"}
READ_SECONDS = 30.0


def latest(topic: str, bootstrap: str) -> dict[str, bytes]:
    """The newest value of each key of a small compacted topic; nothing if the topic is not there."""
    if not exists(topic, bootstrap):
        return {}
    found: dict[str, bytes] = {}
    for message in to_the_end(topic, bootstrap):
        key = (message.key() or b"").decode()
        value = message.value()
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def to_the_end(topic: str, bootstrap: str) -> Iterator[Message]:
    """The committed records of a topic, up to its end."""
    consumer = reader(bootstrap)
    deadline = time.monotonic() + READ_SECONDS
    try:
        numbers = offsets.partitions(offsets.admin(bootstrap), [topic])[topic]
        open_ones = set(numbers)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        while open_ones:
            for message in consumer.consume(1000, timeout=0.05):
                deadline = time.monotonic() + READ_SECONDS
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"the broker at {bootstrap} does not give {topic}; see if it is well, and try again"
                )
    finally:
        consumer.close()


def reader(bootstrap: str, group: str = "millrace-readers", **settings: Any) -> Consumer:
    """A consumer of committed records that commits nothing itself."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **settings,
        }
    )


@contextmanager
def transaction(name: str, bootstrap: str) -> Iterator[Producer]:
    """A transaction, committed when its block ends well."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(READ_SECONDS)
    producer.begin_transaction()
    try:
        yield producer
    except BaseException:
        producer.abort_transaction(READ_SECONDS)
        raise
    producer.commit_transaction(READ_SECONDS)


def exists(topic: str, bootstrap: str) -> bool:
    """Whether there is such a topic."""
    return bool(offsets.matching(bootstrap, re.escape(topic)))


def ensure(
    topic: str, bootstrap: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Make a topic unless it is there."""
    if exists(topic, bootstrap):
        return
    client = offsets.admin(bootstrap)
    made = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    try:
        client.create_topics([made], request_timeout=offsets.REQUEST_SECONDS)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise PipelineError(
                f"cannot make the topic {topic}: {error.args[0].str()}; make it by hand and try again"
            ) from error


def ensure_like(topic: str, model: str, bootstrap: str) -> None:
    """Make a topic with the partitions and settings of another, if that one is there."""
    client = offsets.admin(bootstrap)
    count = len(offsets.partitions(client, [model])[model])
    config: dict[str, str] = {}
    if count:
        resource = ConfigResource(ResourceType.TOPIC, model)
        entries = client.describe_configs([resource], request_timeout=offsets.REQUEST_SECONDS)[
            resource
        ].result()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        config = {name: entry.value for name, entry in entries.items() if entry.source == own}
    ensure(topic, bootstrap, partitions=count or -1, config=config)


def delete(topics: Iterable[str], bootstrap: str) -> None:
    """Delete topics that are there, and wait until they are gone."""
    there = [topic for topic in topics if exists(topic, bootstrap)]
    if there:
        client = offsets.admin(bootstrap)
        for done in client.delete_topics(there, operation_timeout=offsets.REQUEST_SECONDS).values():
            done.result()


def delete_groups(queries: Iterable[str], bootstrap: str) -> None:
    """Delete what queries have committed: the groups of their names, and those of their transactions."""
    client = offsets.admin(bootstrap)
    names = tuple(queries)
    listed = client.list_consumer_groups(request_timeout=offsets.REQUEST_SECONDS).result().valid
    commits = tuple(f"{name}.commits." for name in names)
    mine = [one.group_id for one in listed if one.group_id in names or one.group_id.startswith(commits)]
    if mine:
        for done in client.delete_consumer_groups(mine, request_timeout=offsets.REQUEST_SECONDS).values():
            done.result()
