"""Consume throughput: librdkafka reads a whole topic from its beginning, by assignment."""

import time

from benchmarks import memory
from benchmarks.librdkafka import BatchConsumer, Settings
from benchmarks.target import Target

QUEUE_KBYTES = 262_144
# Fetch well ahead of the application, as a consumer that is catching up should.
SETTINGS: Settings = {
    "group.id": "benchmark",
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": QUEUE_KBYTES,
    "fetch.message.max.bytes": 4_194_304,
}
PATIENCE_SECONDS = 120


def throughput(target: Target, *, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Read the first `records` records of a topic."""
    partitions = target.partitions(topic)
    consumer = BatchConsumer(topic, {**SETTINGS, "bootstrap.servers": target.bootstrap})
    received, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    memory.warm(2 * QUEUE_KBYTES * 1024)
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
