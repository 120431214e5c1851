"""Real producers that continue through every crash, and a ledger of the acknowledged records."""

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from .plan import KIB, Plan

RECORDS_PER_BURST = 20
FINISH_SECONDS = 60


def key_of(value: bytes) -> bytes:
    """The key of a record; the value contains it too."""
    return value.split(b" ", 2)[1]


@dataclass
class Ledger:
    """The records of one producer, by partition."""

    sent: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Offset to value."""
    failures: list[str] = field(default_factory=list)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        known = self.acknowledged[partition].setdefault(offset, value)
        if known != value:
            self.failures.append(f"offset {offset} of partition {partition} was acknowledged twice")

    def end_offset(self, partition: int) -> int:
        """The lowest possible end of the partition."""
        return max(self.acknowledged[partition], default=-1) + 1


class Load(threading.Thread):
    """One producer at work until `finish` is called."""

    def __init__(self, name: str, bootstrap: str, topic: str, plan: Plan, *, idempotent: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = Ledger()
        self._topic = topic
        self._plan = plan
        self._random = random.Random(f"{plan.seed} {name}")
        self._finishing = threading.Event()
        self._fatal = ""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                # Without sequence numbers, order survives a retry only with one request in flight.
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "linger.ms": plan.linger_ms,
                "batch.num.messages": 100,
                # Smaller than the smallest segment.
                "batch.size": 12 * KIB,
                "compression.type": plan.compression,
                "queue.buffering.max.messages": 1000,
                "message.timeout.ms": FINISH_SECONDS * 1000,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "error_cb": self._failed,
                "log_level": 0,
            }
        )

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = str(error)

    def run(self) -> None:
        while not self._finishing.is_set() and not self._fatal:
            for _ in range(RECORDS_PER_BURST):
                self._send(self._random.randrange(self._plan.partitions))
            self._producer.poll(0.005)

    def _send(self, partition: int) -> None:
        sent = self.ledger.sent[partition]
        key = b"%d" % self._random.randrange(self._plan.keys)
        head = b"%s %s %d %d " % (self.name.encode(), key, partition, len(sent))
        value = head + self._random.randbytes(self._random.randint(*self._plan.value_bytes))
        try:
            self._producer.produce(self._topic, value, key, partition, on_delivery=self.ledger.delivered)
        except BufferError:
            # The broker is down: nothing more to send until it is back.
            self._producer.poll(0.02)
            return
        sent.append(value)

    def finish(self) -> None:
        """Send nothing more, and wait for everything that was sent to be acknowledged."""
        self._finishing.set()
        self.join(FINISH_SECONDS)
        left = self._producer.flush(FINISH_SECONDS)
        if self._fatal:
            self.ledger.failures.append(f"{self.name} gave up: {self._fatal}")
        if left:
            self.ledger.failures.append(f"{left} records of {self.name} were never acknowledged")
