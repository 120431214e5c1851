"""Reads small topics whole, and writes records in transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.client import admin
from millrace.pipelines.kafka.topic_admin import exists

READ_SECONDS = 30.0


def latest(topic: str, bootstrap: str) -> dict[str, bytes]:
    """Return the newest value of each key of a small compacted topic; nothing if it does not exist."""
    if not exists(topic, bootstrap):
        return {}
    values: dict[str, bytes] = {}
    for message in read_to_end(topic, bootstrap):
        key = (message.key() or b"").decode()
        value = message.value()
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def read_to_end(topic: str, bootstrap: str) -> Iterator[Message]:
    """Yield the committed records of a topic, up to its end."""
    consumer = committed_consumer(bootstrap)
    deadline = time.monotonic() + READ_SECONDS
    try:
        partitions = offsets.partitions(admin(bootstrap), [topic])[topic]
        unfinished = set(partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while unfinished:
            for message in consumer.consume(1000, timeout=0.05):
                deadline = time.monotonic() + READ_SECONDS
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"the broker at {bootstrap} does not deliver {topic}; check its log, and try again"
                )
    finally:
        consumer.close()


def committed_consumer(bootstrap: str, group: str = "millrace-readers", **settings: Any) -> Consumer:
    """A consumer that reads committed records, from the start, and commits nothing itself."""
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
    """A transaction: committed at the end of the block, aborted if the block raises."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(READ_SECONDS)
    producer.begin_transaction()
    try:
        yield producer
    except BaseException:
        producer.abort_transaction(READ_SECONDS)
        raise
    producer.commit_transaction(READ_SECONDS)


def now_ms() -> int:
    """The current time in milliseconds since 1970, as in the timestamps of records."""
    return int(time.time() * 1000)
