"""The `_schemas` topic: a reader that replays it from the start, and a writer that fences older writers.

Writes are transactions under one transactional id. A new leader fences the one before it: a registry that was
replaced without noticing can no longer write, so an id is never given twice. A write of several records is
visible as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millrace.admin.cluster import describe_cluster
from millrace.admin.topics import NewTopic, create_topics, existing_topics, wait_for_topics
from millrace.client import Client, security_of
from millrace.errors import Error
from millrace.registry import errors
from millrace.registry.records import Record

logger = logging.getLogger(__name__)

TOPIC = "_schemas"
REPLICAS = 3

_CONFIG = {"cleanup.policy": "compact"}
_BATCH = 2000
_POLL_SECONDS = 0.2
_WRITE_SECONDS = 15.0

_Read = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""

Replay = Callable[[bytes | None, bytes | None], None]
Properties = Mapping[str, str]


async def create_topic(bootstrap: str, topic: str, properties: Properties) -> str:
    """Create the topic unless it exists: one partition, compacted, up to three replicas.

    Returns the id of the cluster.
    """
    async with Client(bootstrap, security=security_of(properties)) as client:
        cluster = await describe_cluster(client)
        if topic in await existing_topics(client, [topic]):
            return cluster.cluster_id or ""
        replicas = min(REPLICAS, len(cluster.brokers))
        new = NewTopic(topic, partitions=1, replication_factor=replicas, configs=_CONFIG)
        for error in (await create_topics(client, [new])).failed.values():
            # Another registry may have been faster.
            if error.error is not Error.TOPIC_ALREADY_EXISTS:
                raise error
        await wait_for_topics(client, [topic])
        return cluster.cluster_id or ""


class Reader:
    """Replays the topic on the event loop, while a thread waits for records."""

    def __init__(self, bootstrap: str, topic: str, replay: Replay, properties: Properties) -> None:
        self.failure: str | None = None
        self._bootstrap, self._topic, self._properties = bootstrap, topic, properties
        self._replay = replay
        self._loop = asyncio.get_running_loop()
        self._next_offset = 0
        self._loaded = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millrace-registry-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)

    async def loaded(self) -> None:
        """Wait until every record that the topic had at the start is replayed."""
        await self._loaded.wait()

    async def replayed(self, offset: int) -> None:
        """Wait until the record at this offset is replayed."""
        if self._next_offset <= offset:
            waiter = self._loop.create_future()
            self._waiting.append((offset, waiter))
            await waiter

    # On the thread

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                **self._properties,
                "bootstrap.servers": self._bootstrap,
                # Not used: the partition is assigned by hand, and nothing is committed.
                "group.id": "millrace-registry-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 500,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while not self._stopped.is_set():
                # `consume` alone would wait until it has as many records as it may return.
                first = consumer.poll(_POLL_SECONDS)
                if first is None:
                    continue
                records: list[_Read] = []
                is_end, failure = False, None
                for message in (first, *consumer.consume(_BATCH, 0)):
                    error = message.error()
                    if error is None:
                        records.append((int(message.offset() or 0), message.key(), message.value()))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        is_end = True
                    else:
                        failure = error.str()
                self._loop.call_soon_threadsafe(self._take, records, is_end, failure)
        except RuntimeError:
            # The event loop has closed.
            pass
        finally:
            consumer.close()

    # On the loop

    def _take(self, records: list[_Read], is_end: bool, failure: str | None) -> None:
        if failure is not None and failure != self.failure:
            logger.warning("reading the schema topic fails: %s; trying again", failure)
        self.failure = None if records or is_end else failure
        for offset, key, value in records:
            self._replay(key, value)
            self._next_offset = offset + 1
        if is_end:
            self._loaded.set()
        if self._waiting and records:
            due = [each for each in self._waiting if each[0] < self._next_offset]
            self._waiting = [each for each in self._waiting if each[0] >= self._next_offset]
            for _, waiter in due:
                if not waiter.done():
                    waiter.set_result(None)


class Fenced(Exception):
    """Another registry has become the leader and writes from now on."""


class Writer:
    """Writes to the topic, one transaction at a time. A new writer fences the one before it."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, properties: Properties) -> None:
        self._topic = topic
        self._settings = {
            **properties,
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(_WRITE_SECONDS * 1000),
            "linger.ms": 0,
            "log_level": 2,
        }
        self._producer: Any = None
        # The client library blocks; one thread keeps the writes in order.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millrace-registry-writer")

    async def open(self) -> None:
        """Fence older writers and abort what they left open."""
        await self._on_thread(self._open)

    async def write(self, records: Sequence[Record]) -> int:
        """Write records as a whole; return the offset of the last one.

        Raises Fenced, or ApiError if the log does not accept them; nothing is written then.
        """
        offset: int = await self._on_thread(self._write, records)
        return offset

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._on_thread(producer.purge)
        self._thread.shutdown(wait=False)

    async def _on_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # On the thread

    def _open(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(self._settings)
        producer.init_transactions(_WRITE_SECONDS)
        self._producer = producer

    def _write(self, records: Sequence[Record]) -> int:
        from confluent_kafka import KafkaException

        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        producer = self._producer
        try:
            producer.begin_transaction()
            for record in records:
                key, value = record.encoded()
                producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
            producer.commit_transaction(_WRITE_SECONDS)
        except KafkaException as failure:
            raise self._failed(failure) from None
        return max(offsets)

    def _failed(self, failure: Any) -> Exception:
        """Abort the transaction; the error that the caller raises."""
        from confluent_kafka import KafkaException

        error = failure.args[0]
        if error.fatal():
            return Fenced(error.str())
        try:
            self._producer.abort_transaction(_WRITE_SECONDS)
        except KafkaException as second:
            if second.args[0].fatal():
                return Fenced(second.args[0].str())
        timed_out = error.code() == error._TIMED_OUT
        return errors.store_timeout(error.str()) if timed_out else errors.store_failed(error.str())
