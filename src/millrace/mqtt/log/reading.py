"""Reads parts of the log once: internal topics at the start, and messages that clients are behind with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.mqtt.log.clients import consumer, next_batch
from millrace.mqtt.messages import Positions, Source

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from millrace.mqtt.settings import Settings

T = TypeVar("T")

READERS = 2
BATCH = 200
WAIT_SECONDS = 0.5


class Readers:
    """A few threads with a consumer each. Work that waits for one is done in the order it came."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()
        self._consumers: list[Consumer] = []
        self._is_open = True
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="mqtt-reader")

    async def run(self, read: Callable[[Callable[[Positions, Positions], Iterator[Any]]], T]) -> T:
        """Run a function on a reader's thread; it gets `records(start, end)` to read with."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: read(self._records))

    def _records(self, start: Positions, end: Positions) -> Iterator[Any]:
        """The records of each partition from an offset up to the one before `end`."""
        left = {source: end[source] for source in start if start[source] < end.get(source, 0)}
        if not left:
            return
        mine = self._consumer()
        mine.assign([TopicPartition(*source, start[source]) for source in left])
        try:
            while left and self._is_open:
                for message in next_batch(mine, BATCH, WAIT_SECONDS):
                    source = Source(message.topic(), message.partition())
                    if source not in left:
                        continue
                    error = message.error()
                    if error is not None:
                        if error.code() != KafkaError._PARTITION_EOF:
                            raise KafkaException(error)
                        del left[source]
                        continue
                    offset = message.offset()
                    is_wanted = offset < left[source]
                    # The last one may be missing: compacted, or the mark of a transaction's end.
                    if offset + 1 >= left[source]:
                        del left[source]
                    if is_wanted:
                        yield message
        finally:
            mine.unassign()

    def _consumer(self) -> Consumer:
        if not hasattr(self._local, "consumer"):
            self._local.consumer = consumer(self._settings, **{"enable.partition.eof": True})
            self._consumers.append(self._local.consumer)
        mine: Consumer = self._local.consumer
        return mine

    async def close(self) -> None:
        self._is_open = False
        await asyncio.to_thread(self._pool.shutdown)
        for each in self._consumers:
            await asyncio.to_thread(each.close)
