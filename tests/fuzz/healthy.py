"""A well-behaved client that fails its test if other clients disturb it."""

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
    """Sends records and reads them back, one after the other, for as long as the block lasts."""

    def __init__(self, bootstrap: str) -> None:
        self.rounds = 0
        self.slowest_seconds = 0.0
        self._failures: list[str] = []
        self._acknowledged: list[int] = []
        self._stopping = threading.Event()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        with contextlib.suppress(KafkaException):
            # It may exist already.
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_SECONDS)
        settings = {"bootstrap.servers": bootstrap, "error_cb": self._failed, "log_level": 0}
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
            assert not self._failures, self._failures
            assert self.rounds, "the healthy client finished no round"

    def _failed(self, error: KafkaError) -> None:
        self._failures.append(str(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed(error)
        else:
            self._acknowledged.append(message.offset() or 0)

    def _work(self) -> None:
        while not self._stopping.is_set() and not self._failures:
            began = time.monotonic()
            self._round(b"%d" % self.rounds)
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self.rounds += 1

    def _round(self, value: bytes) -> None:
        self._producer.produce(TOPIC, value, on_delivery=self._delivered)
        if self._producer.flush(PATIENCE_SECONDS):
            self._failures.append(f"record {value!r} was not acknowledged")
            return
        message = self._consumer.poll(PATIENCE_SECONDS)
        if message is None or message.error() or message.value() != value:
            self._failures.append(f"read {message and (message.error() or message.value())} for {value!r}")
