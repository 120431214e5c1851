"""A store in a compacted topic of the log: the newest record of each key."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.kafka.client import explained
from millrace.pipelines.kafka.records import committed_consumer
from millrace.trident.errors import StateError

TIMEOUT_SECONDS = 30.0
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class CompactedTopic:
    """Keeps values in a topic, and all of them in memory while it is open.

    A reader follows the topic: every `multi_get` first reads what is new. The first write takes the topic
    over from any earlier writer, which can write no more. One thread may use it.
    """

    def __init__(self, topic: str, bootstrap: str) -> None:
        if not _LEGAL_NAME.fullmatch(topic):
            raise StateError(f"a topic cannot be called {topic!r}; use letters, digits, '.', '_' and '-'")
        self._topic = topic
        self._bootstrap = bootstrap
        topic_admin.ensure(topic, bootstrap, config=topic_admin.COMPACTED)
        self._values: dict[str, str] = {}
        self._read_to = 0
        self._producer: Producer | None = None
        self._consumer: Consumer = committed_consumer(bootstrap)
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        if self._producer is None:
            self._catch_up()
        return [self._values.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        with explained(self._bootstrap):
            producer = self._writer()
            producer.begin_transaction()
            try:
                for key, value in zip(keys, values, strict=True):
                    self._produce(producer, key, value)
                producer.commit_transaction(TIMEOUT_SECONDS)
            except KafkaException:
                # Whether the transaction was committed is unknown: the next use reads it from the log.
                self._producer = None
                raise
        self._values.update(zip(keys, values, strict=True))

    def close(self) -> None:
        self._producer = None
        self._consumer.close()

    def _produce(self, producer: Producer, key: str, value: str) -> None:
        while True:
            try:
                producer.produce(self._topic, key=key.encode(), value=value.encode(), partition=0)
                return
            except BufferError:
                producer.poll(0.1)

    def _writer(self) -> Producer:
        """The producer of this writer. Nothing that an earlier writer has begun can follow its start."""
        if self._producer is None:
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": f"trident-state-{self._topic}",
                    "log_level": 0,
                }
            )
            producer.init_transactions(TIMEOUT_SECONDS)
            self._catch_up()
            self._producer = producer
        return self._producer

    def _catch_up(self) -> None:
        """Read what is committed and new."""
        with explained(self._bootstrap):
            # With read_committed this end lies before any open transaction.
            _, end = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, 0), timeout=TIMEOUT_SECONDS
            )
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while self._read_to < end:
                for message in self._consumer.consume(1000, timeout=0.05):
                    self._take(message)
                    deadline = time.monotonic() + TIMEOUT_SECONDS
                if time.monotonic() > deadline:
                    raise StateError(
                        f"the broker at {self._bootstrap} does not deliver the state {self._topic};"
                        " check its log, and try again"
                    )

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._values[(message.key() or b"").decode()] = (message.value() or b"").decode()
            self._read_to = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read_to = max(self._read_to, message.offset() or 0)
        else:
            raise KafkaException(error)
