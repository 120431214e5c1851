"""Consumer instances: each is a Kafka consumer that HTTP requests drive, and that is closed when it idles."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from millrace.rest.errors import error, instance_not_found
from millrace.rest.formats import BINARY, FORMATS

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_SECONDS = 300.0
REQUEST_TIMEOUT_MS = 1000
MAX_BYTES = 64 * 1024 * 1024
_MAX_RECORDS = 10_000
_SWEEP_SECONDS = 1.0
_THREADS = 64

# Settings of an instance, and the Kafka consumer's names of them.
_BOOLEANS = {"auto.commit.enable": "enable.auto.commit"}
_NUMBERS = {"fetch.min.bytes": "fetch.min.bytes"}
_ISOLATION = ("read_committed", "read_uncommitted")


class Instance:
    """One consumer. Its requests run one after the other, on threads: the client library blocks."""

    def __init__(
        self,
        group: str,
        name: str,
        record_format: str,
        consumer: Any,
        timeout_ms: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.group, self.name, self.format = group, name, record_format
        self.timeout_ms = timeout_ms
        self.topics: list[str] = []
        self.is_assigned = False
        self.last_used = time.monotonic()
        self.consumer = consumer
        self._pool = pool
        self._lock = asyncio.Lock()
        self.is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._lock.locked()

    async def run(self, function: Callable[[], T]) -> T:
        """Run something that uses the consumer."""
        self.last_used = time.monotonic()
        async with self._lock:
            if self.is_closed:
                raise instance_not_found(self.name)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, function)
            finally:
                self.last_used = time.monotonic()

    async def close(self) -> None:
        async with self._lock:
            if not self.is_closed:
                self.is_closed = True
                await asyncio.get_running_loop().run_in_executor(self._pool, self.consumer.close)

    def rewind(self, messages: list[Any]) -> None:
        """Read these records again next time. Blocking."""
        from confluent_kafka import TopicPartition

        first: dict[tuple[str, int], int] = {}
        for message in messages:
            first.setdefault((message.topic(), message.partition()), message.offset())
        for (topic, partition), offset in first.items():
            self.consumer.seek(TopicPartition(topic, partition, offset))

    def fetch(self, timeout_ms: int, max_bytes: int) -> list[Any]:
        """Records, as soon as there are some; none if the time has passed. Blocking.

        While the group is being joined, the time is waited for rather than cut short.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        found: list[Any] = []
        size = 0
        while size < max_bytes and len(found) < _MAX_RECORDS:
            left = deadline - time.monotonic()
            # Once there are records, only those that have arrived already are added.
            message = self.consumer.poll(0 if found else max(left, 0))
            if message is None:
                if found or left <= 0:
                    break
                continue
            failure = message.error()
            if failure is not None:
                if failure.fatal() or not failure.retriable():
                    raise error(50002, f"Kafka error: {failure.str()}")
                continue
            found.append(message)
            size += len(message.value() or b"") + len(message.key() or b"")
        return found


class Instances:
    """All consumer instances of this proxy."""

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str], idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._bootstrap, self._properties = bootstrap, properties
        self._idle_seconds = idle_seconds
        self._by_name: dict[tuple[str, str], Instance] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="millrace-rest-consumer")
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def create(self, group: str, settings: Mapping[str, Any]) -> Instance:
        """Create a consumer; it joins its group when it subscribes. Raises ApiError."""
        from confluent_kafka import Consumer, KafkaException

        name = settings.get("name") or settings.get("id") or f"rest-consumer-{uuid.uuid4()}"
        if not isinstance(name, str):
            raise error(42204, "Invalid consumer configuration: name is not a string")
        if (group, name) in self._by_name:
            raise error(40902, f"Consumer with specified consumer ID already exists in the group: {name}")
        record_format = str(settings.get("format", BINARY)).lower()
        if record_format not in FORMATS:
            raise error(
                42204, f"Invalid consumer configuration: format {record_format!r} is not one of {FORMATS}"
            )
        properties = {
            **self._properties,
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "client.id": name,
            "log_level": 2,
            **_kafka_settings(settings),
        }
        try:
            consumer = Consumer(properties)
        except KafkaException as failure:
            raise error(42204, f"Invalid consumer configuration: {failure.args[0].str()}") from None
        timeout_ms = _number(settings, "consumer.request.timeout.ms", REQUEST_TIMEOUT_MS)
        instance = Instance(group, name, record_format, consumer, timeout_ms, self._pool)
        self._by_name[group, name] = instance
        if self._sweeping is None:
            self._sweeping = asyncio.ensure_future(self._sweep())
        return instance

    def get(self, group: str, name: str) -> Instance:
        """A living instance. Raises ApiError."""
        try:
            return self._by_name[group, name]
        except KeyError:
            raise instance_not_found(name) from None

    async def delete(self, group: str, name: str) -> None:
        instance = self.get(group, name)
        del self._by_name[group, name]
        await instance.close()

    async def close(self) -> None:
        """Close every consumer, so that its group need not wait for it."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        instances = list(self._by_name.values())
        self._by_name.clear()
        await asyncio.gather(*(instance.close() for instance in instances))
        self._pool.shutdown(wait=False)

    async def _sweep(self) -> None:
        """Close instances that no request has used for a while."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._idle_seconds / 4))
            now = time.monotonic()
            for key, instance in list(self._by_name.items()):
                if instance.is_idle and now - instance.last_used > self._idle_seconds:
                    del self._by_name[key]
                    logger.info(
                        "consumer instance %s of group %s closed: it idled", instance.name, instance.group
                    )
                    await instance.close()


def _kafka_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, kafka_name in _BOOLEANS.items():
        if name in settings:
            value = str(settings[name]).lower()
            if value not in ("true", "false"):
                raise error(
                    42204, f"Invalid consumer configuration: {name} is true or false, not {value[:100]}"
                )
            read[kafka_name] = value == "true"
    for name, kafka_name in _NUMBERS.items():
        if name in settings:
            # The client library knows no minimum of -1, which stands for the default.
            read[kafka_name] = max(_number(settings, name, 1), 1)
    reset = str(settings.get("auto.offset.reset", "latest")).lower()
    if reset not in ("earliest", "latest", "none"):
        raise error(42204, f"Invalid consumer configuration: auto.offset.reset {reset[:100]!r}")
    read["auto.offset.reset"] = "error" if reset == "none" else reset
    if "isolation.level" in settings:
        level = str(settings["isolation.level"]).lower()
        if level not in _ISOLATION:
            raise error(42204, f"Invalid consumer configuration: isolation.level {level[:100]!r}")
        read["isolation.level"] = level
    return read


def _number(settings: Mapping[str, Any], name: str, default: int) -> int:
    try:
        return int(settings.get(name, default))
    except (ValueError, TypeError):
        raise error(42204, f"Invalid consumer configuration: {name} is not a number") from None
