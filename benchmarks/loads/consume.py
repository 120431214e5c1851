"""Consume throughput: librdkafka reads a whole topic from its beginning, by assignment."""

import time

from benchmarks import memory
from benchmarks.librdkafka import BatchConsumer, Settings
from benchmarks.target import Target

# What librdkafka holds for the application at most, by default.
QUEUE_BYTES = 64 * 1024 * 1024
SETTINGS: Settings = {
    "group.id": "benchmark",
    # With its default of a second, librdkafka pauses far longer than the application takes for what it holds,
    # and the more often the faster a broker fills the queue.
    "fetch.queue.backoff.ms": 10,
}
PATIENCE_SECONDS = 120


def throughput(target: Target, *, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Read the first `records` records of a topic."""
    partitions = target.partitions(topic)
    consumer = BatchConsumer(topic, {**SETTINGS, "bootstrap.servers": target.bootstrap})
    received, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    memory.warm(2 * QUEUE_BYTES)
    with target.measured() as spent:
        consumer.start(partitions)
        while received < records:
            received += consumer.receive(1000)
            if time.monotonic() > deadline:
                raise TimeoutError(f"read only {received} of {records} records")
    consumer.close()
    gigabytes = received * record_bytes / 1e9
    return {
        "MB/s": gigabytes * 1000 / spent.seconds,
        "broker CPU s/GB": spent.broker_cpu_seconds / gigabytes,
    }
