"""A well-behaved client that works beside the others, and complains when it is disturbed."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "healthy"
# A loaded machine may be slow; a broker that is stuck is slower.
PATIENCE_SECONDS = 20.0


class HealthyClient:
    """Sends a record, sees it acknowledged, reads it back, and again, as long as the block lasts."""

    def __init__(self, bootstrap: str) -> None:
        self.rounds = 0
        self.slowest_seconds = 0.0
        self._troubles: list[str] = []
        self._acknowledged: list[int] = []
        self._stopping = threading.Event()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        with contextlib.suppress(KafkaException):
            # It may be there from the last time.
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_SECONDS)
        settings = {"bootstrap.servers": bootstrap, "error_cb": self._in_trouble, "log_level": 0}
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 0})
        self._consumer = Consumer({**settings, "group.id": "none", "fetch.wait.max.ms": 100})
        _, end = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), PATIENCE_SECONDS)
        self._consumer.assign([TopicPartition(TOPIC, 0, end)])
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(3 * PATIENCE_SECONDS)
        self._consumer.close()
        if error is None:
            assert not self._troubles, self._troubles
            assert self.rounds, "the healthy client got nowhere"

    def _in_trouble(self, error: KafkaError) -> None:
        self._troubles.append(str(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._in_trouble(error)
        else:
            self._acknowledged.append(message.offset() or 0)

    def _work(self) -> None:
        while not self._stopping.is_set() and not self._troubles:
            began = time.monotonic()
            self._round(b"%d" % self.rounds)
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self.rounds += 1

    def _round(self, value: bytes) -> None:
        self._producer.produce(TOPIC, value, on_delivery=self._delivered)
        if self._producer.flush(PATIENCE_SECONDS):
            self._troubles.append(f"record {value!r} was not acknowledged")
            return
        message = self._consumer.poll(PATIENCE_SECONDS)
        if message is None or message.error() or message.value() != value:
            self._troubles.append(f"read {message and (message.error() or message.value())} for {value!r}")
