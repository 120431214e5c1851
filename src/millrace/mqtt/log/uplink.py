"""Writes records, and reports each when every in-sync replica has it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaException

from millrace.mqtt.log.clients import producer
from millrace.mqtt.messages import Record, Source

if TYPE_CHECKING:
    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
FLUSH_SECONDS = 10.0


class Written(NamedTuple):
    """The end of a write: the record's place in the log, or the error."""

    source: Source | None
    offset: int
    error: str | None = None


Done: TypeAlias = Callable[[Written], None]


def _ignore(_: Written) -> None:
    pass


class Uplink:
    """An idempotent producer with acks=all. `send` and the callbacks belong to the event loop."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._settings = settings
        self._producer = producer(settings)
        self._waiting: deque[tuple[Record, Done]] = deque()
        self._completed: deque[tuple[Done, Written]] = deque()
        self._is_reporting = False
        self._is_open = True
        self._thread = threading.Thread(target=self._poll, name="mqtt-uplink", daemon=True)
        self._thread.start()

    def send(self, record: Record, done: Done = _ignore) -> None:
        """Write a record; records with the same key keep their order."""
        if self._waiting or not self._produce(record, done):
            self._waiting.append((record, done))

    def _produce(self, record: Record, done: Done) -> bool:
        """Hand a record to the producer; False if its queue is full."""

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                source = Source(message.topic(), message.partition())
                self._completed.append((done, Written(source, message.offset())))
            else:
                self._completed.append((done, Written(None, 0, error.str())))
            if not self._is_reporting:
                self._is_reporting = True
                self._loop.call_soon_threadsafe(self._report)

        try:
            self._producer.produce(
                record.topic, record.value, record.key, headers=record.headers, on_delivery=delivered
            )
        except BufferError:
            return False
        except KafkaException as error:
            # A record that is too large, or a producer that can write no more.
            done(Written(None, 0, error.args[0].str()))
            if error.args[0].fatal():
                logger.error("the producer has failed, a new one follows: %s", error.args[0].str())
                self._producer = producer(self._settings)
        return True

    def _poll(self) -> None:
        while self._is_open:
            self._producer.poll(POLL_SECONDS)

    def _report(self) -> None:
        # First: a delivery after this line schedules another report.
        self._is_reporting = False
        while self._completed:
            done, written = self._completed.popleft()
            done(written)
        while self._waiting:
            record, done = self._waiting[0]
            if not self._produce(record, done):
                return
            self._waiting.popleft()

    async def close(self) -> None:
        """Write what is on its way, as far as the log accepts it."""
        left = await asyncio.to_thread(self._producer.flush, FLUSH_SECONDS)
        if left:
            logger.warning("%d records could not be written before the server stopped", left)
        self._is_open = False
        await asyncio.to_thread(self._thread.join)
        self._report()
