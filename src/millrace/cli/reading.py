"""Reads whole topics by assignment, without a consumer group."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as LibraryError

from millrace.cli.client import Client
from millrace.cli.client_properties import create
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import EARLIEST, LATEST, ByLeader, Place, list_offsets
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
        self._from_beginning = from_beginning
        self._assigned: set[Place] = set()
        self._look_at = 0.0
        self._consumer: Any = create(
            Consumer,
            {
                "auto.offset.reset": "earliest" if from_beginning else "latest",
                # By default librdkafka pauses for a second whenever it is far enough ahead.
                "fetch.queue.backoff.ms": "2",
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

    def only(self, partition: int, offset: int | None) -> None:
        """Read one partition, from an offset or as the whole topic would be read, and look for no other."""
        assert self._topic is not None
        place = (self._topic, partition)
        existing = self._existing()
        if place not in existing:
            raise CommandError(f"topic {self._topic} has no partition {partition}")
        self._look_at = float("inf")
        if offset is None:
            self._assign({place: existing[place]}, EARLIEST if self._from_beginning else LATEST)
        else:
            self._consumer.assign([TopicPartition(*place, offset)])

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
        new = {place: leader for place, leader in self._existing().items() if place not in self._assigned}
        if new:
            # A partition that comes later is read from its beginning, or records would be missed.
            from_beginning = self._from_beginning or bool(self._assigned)
            self._assign(new, EARLIEST if from_beginning else LATEST)
        self._look_at = now + (LOOK_AGAIN_SECONDS if self._assigned else LOOK_SOON_SECONDS)

    def _assign(self, leaders: dict[Place, int], start: int) -> None:
        """Start reading; librdkafka would take half a second to find out the offsets itself."""
        by_leader: ByLeader = defaultdict(list)
        for place, leader_id in leaders.items():
            by_leader[leader_id].append(place)
        offsets = list_offsets(self._client, by_leader, start)
        ready = [
            TopicPartition(*place, answer.offset)
            for place, answer in offsets.items()
            if answer.error_code == Error.NONE
        ]
        self._consumer.incremental_assign(ready)
        self._assigned |= {(partition.topic, partition.partition) for partition in ready}

    def _existing(self) -> dict[Place, int]:
        """The partitions there are, with their leaders."""
        topics = self._client.metadata(None if self._topic is None else [self._topic], create=True).topics
        partitions = {}
        for topic in topics:
            name = topic.name or ""
            if self._pattern is not None and not self._pattern.match(name):
                continue
            if topic.error_code not in _NOT_THERE_YET:
                check(topic.error_code)
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    partitions[name, partition.partition_index] = partition.leader_id
        return partitions


def _is_error(message: Any) -> bool:
    """Whether this is no record but news; a failure that will not pass is raised."""
    error = message.error()
    if error is None:
        return False
    if error.code() == LibraryError._PARTITION_EOF or error.retriable():
        return True
    raise CommandError(str(KafkaException(error).args[0].str()))
