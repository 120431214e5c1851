"""Follows the ends of log topics: every new record reaches the event loop, in batches."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from millrace.mqtt.log.clients import consumer, next_batch
from millrace.mqtt.messages import Positions

if TYPE_CHECKING:
    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

BATCH = 500
WAIT_SECONDS = 0.2
BATCHES_AHEAD = 2


class Follower:
    """A consumer on a thread of its own. It waits while the event loop has not handled its last batches."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        start: Positions,
        handle: Callable[[list[Any]], None],
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._ahead = threading.Semaphore(BATCHES_AHEAD)
        self._is_open = True
        self._consumer = consumer(settings)
        self._consumer.assign([TopicPartition(*source, offset) for source, offset in start.items()])
        self._thread = threading.Thread(target=self._run, name="mqtt-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._is_open:
            batch = next_batch(self._consumer, BATCH, WAIT_SECONDS)
            good = []
            for message in batch:
                if message.error() is None:
                    good.append(message)
                else:
                    logger.warning("reading the log failed, trying again: %s", message.error().str())
            if good:
                self._ahead.acquire()
                self._loop.call_soon_threadsafe(self._deliver, good)

    def _deliver(self, batch: list[Any]) -> None:
        try:
            self._handle(batch)
        finally:
            self._ahead.release()

    async def close(self) -> None:
        self._is_open = False
        self._ahead.release()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._consumer.close)
