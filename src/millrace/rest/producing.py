"""One producer for all requests: thousands of small calls become few batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_POLL_SECONDS = 0.1
_FULL_PAUSE_SECONDS = 0.01

Headers = Sequence[tuple[str, bytes | None]]


class Delivered(NamedTuple):
    """The place of a record in the log."""

    partition: int
    offset: int
    timestamp_ms: int


class DeliveryFailed(Exception):
    """The log did not accept a record. `code` is Kafka's, negative for errors of the client library."""

    def __init__(self, code: int, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.code, self.message, self.retriable = code, message, retriable


class SharedProducer:
    """Sends records; the future of each gets its place or its error. Belongs to one event loop."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._settings: dict[str, Any] = {
            "linger.ms": 5,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "delivery.timeout.ms": 30_000,
            "queue.buffering.max.kbytes": 65_536,
            "log_level": 2,
            **properties,
            "bootstrap.servers": bootstrap,
        }
        self._loop = asyncio.get_running_loop()
        self._producer: Any = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def _open(self) -> Any:
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(self._settings)
            self._thread = threading.Thread(target=self._poll, name="millrace-rest-producer", daemon=True)
            self._thread.start()
        return self._producer

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(_POLL_SECONDS)

    async def close(self) -> None:
        """Send what is left, for a moment."""
        self._stopped.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            await asyncio.to_thread(self._producer.flush, 5)
            self._producer = self._thread = None

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Hand a record to the producer; waits while its buffer is full. The result comes by the future."""
        from confluent_kafka import KafkaException

        producer = self._open()
        result: asyncio.Future[Delivered] = self._loop.create_future()

        def delivered(error: Any, message: Any) -> None:
            # On the polling thread.
            self._loop.call_soon_threadsafe(_settle, result, error, message)

        more: dict[str, Any] = {}
        if partition is not None:
            more["partition"] = partition
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms
        while True:
            try:
                producer.produce(topic, value, key, headers=list(headers), on_delivery=delivered, **more)
                return result
            except BufferError:
                await asyncio.sleep(_FULL_PAUSE_SECONDS)
            except KafkaException as failure:
                result.set_exception(_failed(failure.args[0]))
                return result


def _settle(result: asyncio.Future[Delivered], error: Any, message: Any) -> None:
    if result.done():
        return
    if error is not None:
        result.set_exception(_failed(error))
    else:
        result.set_result(Delivered(message.partition(), message.offset(), message.timestamp()[1]))


def _failed(error: Any) -> DeliveryFailed:
    return DeliveryFailed(error.code(), error.str(), retriable=error.retriable())
