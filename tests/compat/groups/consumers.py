"""Consumers of every Python client behind one interface, so that each behaviour is tested with each."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

import aiokafka
import confluent_kafka
import kafka
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

SECONDS = 30.0
POLL_SECONDS = 0.05
# kafka-python 3.0 loses an assignment whose JoinGroup is answered just after a poll timed out. It joins
# again when its topic's metadata arrives, 100 ms after the start: a poll must not end around then.
KAFKA_PYTHON_POLL_SECONDS = 0.35
# Members notice a rebalance soon, and members that die are noticed within a test's timeout.
SESSION = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 200}
SHORT_SESSION = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 200}

T = TypeVar("T")


class Record(NamedTuple):
    partition: int
    offset: int
    value: bytes


class GroupConsumer(ABC):
    """One member of a group, subscribed to one topic."""

    @abstractmethod
    def poll(self) -> list[Record]: ...

    @abstractmethod
    def assignment(self) -> set[int]:
        """The partitions it owns now."""

    @abstractmethod
    def commit(self, offsets: dict[int, int] | None = None) -> None:
        """Commit these offsets, or the current positions."""

    @abstractmethod
    def committed(self, partition: int) -> int | None: ...

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def offset_at(self, partition: int, timestamp_ms: int) -> int | None: ...

    @abstractmethod
    def close(self) -> None: ...


class Confluent(GroupConsumer):
    def __init__(self, bootstrap: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 2,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        message = self._consumer.poll(POLL_SECONDS)
        if message is None:
            return []
        if message.error():
            if message.error().retriable() or message.error().code() < 0:
                return []
            raise confluent_kafka.KafkaException(message.error())
        return [Record(message.partition(), message.offset(), message.value())]

    def assignment(self) -> set[int]:
        return {assigned.partition for assigned in self._consumer.assignment()}

    def commit(self, offsets: dict[int, int] | None = None) -> None:
        if offsets is None:
            self._consumer.commit(asynchronous=False)
        else:
            self._consumer.commit(
                offsets=[self._at(partition, offset) for partition, offset in offsets.items()],
                asynchronous=False,
            )

    def committed(self, partition: int) -> int | None:
        (found,) = self._consumer.committed([self._at(partition)], timeout=SECONDS)
        return None if found.offset < 0 else found.offset

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition, offset))

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        (found,) = self._consumer.offsets_for_times([self._at(partition, timestamp_ms)], timeout=SECONDS)
        return None if found.offset < 0 else found.offset

    def _at(self, partition: int, offset: int = -1001) -> confluent_kafka.TopicPartition:
        return confluent_kafka.TopicPartition(self._topic, partition, offset)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(GroupConsumer):
    def __init__(self, bootstrap: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        strategy = settings.pop("partition_assignment_strategy", None)
        if strategy == "cooperative-sticky":
            settings["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        self._consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **settings
        )

    def poll(self) -> list[Record]:
        polled = self._consumer.poll(timeout_ms=int(KAFKA_PYTHON_POLL_SECONDS * 1000), max_records=1)
        return [
            Record(record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assignment(self) -> set[int]:
        return {assigned.partition for assigned in self._consumer.assignment()}

    def commit(self, offsets: dict[int, int] | None = None) -> None:
        if offsets is None:
            self._consumer.commit()
        else:
            self._consumer.commit(
                {self._at(index): kafka.OffsetAndMetadata(to, "", -1) for index, to in offsets.items()}
            )

    def committed(self, partition: int) -> int | None:
        found: int | None = self._consumer.committed(self._at(partition))
        return found

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        found = self._consumer.offsets_for_times({self._at(partition): timestamp_ms})[self._at(partition)]
        return None if found is None else int(found.offset)

    def _at(self, partition: int) -> kafka.TopicPartition:
        return kafka.TopicPartition(self._topic, partition)

    def close(self) -> None:
        self._consumer.close()


class Aiokafka(GroupConsumer):
    """Runs on a loop in its own thread, so that heartbeats continue between polls."""

    def __init__(self, bootstrap: str, topic: str, group: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **settings
            )
            await consumer.start()
            return consumer

        self._consumer: aiokafka.AIOKafkaConsumer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def poll(self) -> list[Record]:
        polled = self._run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=1))
        return [
            Record(record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assignment(self) -> set[int]:
        return {assigned.partition for assigned in self._consumer.assignment()}

    def commit(self, offsets: dict[int, int] | None = None) -> None:
        named = None if offsets is None else {self._at(index): to for index, to in offsets.items()}
        self._run(self._consumer.commit(named))

    def committed(self, partition: int) -> int | None:
        return self._run(self._consumer.committed(self._at(partition)))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        asked = self._at(partition)
        found = self._run(self._consumer.offsets_for_times({asked: timestamp_ms}))[asked]
        return None if found is None else int(found.offset)

    def _at(self, partition: int) -> aiokafka.TopicPartition:
        return aiokafka.TopicPartition(self._topic, partition)

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


CLIENTS: dict[str, type[Any]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def poll_until(consumers: Iterable[GroupConsumer], done: Callable[[], bool]) -> list[Record]:
    """Let consumers poll in turn until a condition holds; returns the records they have read."""
    consumers = list(consumers)
    records: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, "it did not come about in time"
        for consumer in consumers:
            records += consumer.poll()
    return records


def read(consumers: Iterable[GroupConsumer], count: int) -> list[Record]:
    """Read this many records with all consumers together."""
    consumers = list(consumers)
    records: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        for consumer in consumers:
            records += consumer.poll()
    return records


def share(consumers: Iterable[GroupConsumer], partitions: int) -> list[Record]:
    """Let consumers poll until the partitions are divided among all of them; returns the records read."""
    consumers = list(consumers)

    def is_divided() -> bool:
        owned = [consumer.assignment() for consumer in consumers]
        return all(owned) and sorted(index for part in owned for index in part) == list(range(partitions))

    return poll_until(consumers, is_divided)
