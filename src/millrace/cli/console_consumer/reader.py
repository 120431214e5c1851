"""Reads messages in batches, as they arrive."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as LibraryError

from millrace.cli.terminal.client_properties import create
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import Target
from millrace.cli.terminal.session import Session

BATCH = 10_000
WAIT_SECONDS = 0.1


class Reader(ABC):
    """A consumer that returns messages in batches."""

    def __init__(
        self,
        target: Target,
        properties: Mapping[str, str],
        *,
        more_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._session = Session(target)
        self._consumer: Any = create(
            Consumer,
            {
                # By default librdkafka pauses for a second whenever it is far enough ahead.
                "fetch.queue.backoff.ms": "2",
                **properties,
                "bootstrap.servers": target.bootstrap,
            },
            more_settings,
        )

    def close(self) -> None:
        self._consumer.close()
        self._session.close()

    @abstractmethod
    def look_around(self) -> bool:
        """Prepare for the next batch; False while it is too early to expect messages."""

    def batches(self, timeout_ms: int | None, batch: int = BATCH) -> Iterator[list[Any]]:
        """Yield messages as they arrive, or an empty list; stop after `timeout_ms` without messages."""
        last = time.monotonic()
        while True:
            is_ready = self.look_around()
            messages = self._next(batch)
            now = time.monotonic()
            if messages or not is_ready:
                last = now
            elif timeout_ms is not None and (now - last) * 1000 >= timeout_ms:
                return
            yield [message for message in messages if not _is_error(message)]

    def _next(self, batch: int) -> list[Any]:
        # librdkafka would wait for a whole batch, so wait for one message and take all that are ready.
        first = self._consumer.poll(WAIT_SECONDS)
        if first is None:
            return []
        return [first, *self._consumer.consume(batch - 1, 0)] if batch > 1 else [first]


def _is_error(message: Any) -> bool:
    """Whether a message is an event instead of a record. Raises CommandError for a permanent failure."""
    error = message.error()
    if error is None:
        return False
    if error.code() == LibraryError._PARTITION_EOF or error.retriable():
        return True
    raise CommandError(str(KafkaException(error).args[0].str()))
