"""Latency of a record through a query: the next record is sent when the last one has come out."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_SECONDS = 120


def create(bootstrap: str, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        made.result(PATIENCE_SECONDS)


def milliseconds(bootstrap: str, source: str, target: str, *, warm_up: int, samples: int) -> list[float]:
    """Closed-loop latencies; the warm-up also waits for the query to start."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "closed-loop",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 1000,
        }
    )
    consumer.assign([TopicPartition(target, 0, 0)])
    taken = []
    for number in range(warm_up + samples):
        text = f"RECORD-{number}"
        began = time.perf_counter()
        producer.produce(source, text.encode())
        producer.poll(0)
        _wait_for(consumer, text.encode())
        if number >= warm_up:
            taken.append((time.perf_counter() - began) * 1000)
    consumer.close()
    producer.flush(PATIENCE_SECONDS)
    return taken


def _wait_for(consumer: Consumer, text: bytes) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            raise RuntimeError(str(message.error()))
        if text in (message.value() or b""):
            return
    raise RuntimeError(f"{text!r} did not come out within {PATIENCE_SECONDS} s")
