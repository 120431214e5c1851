"""A topic of sentences, the correct counts of their words, and the counts that a job has found."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import accumulate

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.pipelines.closed_loop import create

SOURCE, TARGET = "sentences", "words"
PARTITIONS = 4
WORDS = 8
VOCABULARY = 10_000
SEED = 5
PATIENCE_SECONDS = 60
AT_ONCE = 10_000
# The broker stops before its clients, which should not log that.
QUIET = {"log_level": 0}


def fill(bootstrap: str, sentences: int) -> Counter[str]:
    """Create both topics and fill the source; word frequencies are those of natural language."""
    create(bootstrap, SOURCE, TARGET, partitions=PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 0, "linger.ms": 20, **QUIET}
    )
    dice = random.Random(SEED)
    vocabulary = [f"word{rank}" for rank in range(1, VOCABULARY + 1)]
    weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    counts: Counter[str] = Counter()
    for number in range(sentences):
        words = dice.choices(vocabulary, cum_weights=weights, k=WORDS)
        counts.update(words)
        producer.produce(SOURCE, " ".join(words).encode(), partition=number % PARTITIONS)
        if number % AT_ONCE == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return counts


class Results:
    """The output topic of a job, as readers of committed records see it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._ends = {
            TopicPartition(TARGET, partition): OffsetSpec.latest() for partition in range(PARTITIONS)
        }

    def size(self) -> int:
        """Number of records, including transaction markers."""
        listed = self._admin.list_offsets(self._ends, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(future.result(PATIENCE_SECONDS).offset for future in listed.values())

    def counts(self) -> dict[str, int]:
        """The latest count of every word."""
        newest: dict[bytes, bytes] = {}
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "results",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                **QUIET,
            }
        )
        consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
        reached = 0
        while reached < PARTITIONS:
            for message in consumer.consume(AT_ONCE, 1):
                error = message.error()
                if error is None:
                    newest[message.key() or b""] = message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached += 1
                else:
                    raise KafkaException(error)
        consumer.close()
        return {key.decode(): json.loads(value)["count"] for key, value in newest.items()}
