"""Reads whole topics by assignment, without a consumer group."""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as LibraryError

from millrace.cli.client import Client
from millrace.cli.client_properties import create
from millrace.cli.errors import CommandError, check
from millrace.cli.options import Target
from millrace.errors import Error

# librdkafka wants a group even if it is never joined.
UNUSED_GROUP = "millrace-cli"
BATCH = 10_000
WAIT_SECONDS = 0.1
# How often to look for partitions that came later: soon when there is none yet, else now and then.
LOOK_SOON_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 10.0

_NOT_THERE_YET = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)


class Reader:
    """A consumer of every partition of one topic, or of every topic that matches a pattern."""

    def __init__(
        self,
        target: Target,
        properties: Mapping[str, str],
        *,
        topic: str | None,
        pattern: re.Pattern[str] | None,
        from_beginning: bool,
        more_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._client = Client(target)
        self._topic = topic
        self._pattern = pattern
        self._start = OFFSET_BEGINNING if from_beginning else OFFSET_END
        self._assigned: set[tuple[str, int]] = set()
        self._look_at = 0.0
        self._consumer: Any = create(
            Consumer,
            {
                "auto.offset.reset": "earliest" if from_beginning else "latest",
                **properties,
                "bootstrap.servers": target.bootstrap,
                "group.id": UNUSED_GROUP,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
            },
            more_settings,
        )

    def close(self) -> None:
        self._consumer.close()
        self._client.close()

    def only(self, partition: int, offset: int) -> None:
        """Read one partition from an offset, and look for no other."""
        assert self._topic is not None
        if (self._topic, partition) not in self._existing():
            raise CommandError(f"topic {self._topic} has no partition {partition}")
        self._look_at = float("inf")
        self._consumer.assign([TopicPartition(self._topic, partition, offset)])

    def batches(self, timeout_ms: int | None, batch: int = BATCH) -> Iterator[list[Any]]:
        """Messages as they come, an empty list while none come; ends after `timeout_ms` without any."""
        last = time.monotonic()
        while True:
            self._look_for_partitions()
            messages = self._next(batch)
            now = time.monotonic()
            if messages:
                last = now
            elif timeout_ms is not None and (now - last) * 1000 >= timeout_ms:
                return
            yield [message for message in messages if not _is_error(message)]

    def _next(self, batch: int) -> list[Any]:
        # Asked for many, librdkafka would wait for all of them; so wait for one and take what else is there.
        first = self._consumer.poll(WAIT_SECONDS)
        if first is None:
            return []
        return [first, *self._consumer.consume(batch - 1, 0)] if batch > 1 else [first]

    def _look_for_partitions(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        new = self._existing() - self._assigned
        if new:
            # A partition that comes later is read from its beginning, or records would be missed.
            start = OFFSET_BEGINNING if self._assigned else self._start
            self._consumer.incremental_assign(
                [TopicPartition(name, index, start) for name, index in sorted(new)]
            )
            self._assigned |= new
        self._look_at = now + (LOOK_AGAIN_SECONDS if self._assigned else LOOK_SOON_SECONDS)

    def _existing(self) -> set[tuple[str, int]]:
        topics = self._client.metadata(None if self._topic is None else [self._topic], create=True).topics
        partitions = set()
        for topic in topics:
            name = topic.name or ""
            if self._pattern is not None and not self._pattern.match(name):
                continue
            if topic.error_code not in _NOT_THERE_YET:
                check(topic.error_code)
            partitions |= {(name, partition.partition_index) for partition in topic.partitions}
        return partitions


def _is_error(message: Any) -> bool:
    """Whether this is no record but news; a failure that will not pass is raised."""
    error = message.error()
    if error is None:
        return False
    if error.code() == LibraryError._PARTITION_EOF or error.retriable():
        return True
    raise CommandError(str(KafkaException(error).args[0].str()))
