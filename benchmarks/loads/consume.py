"""Consume throughput: reads a whole topic from its beginning, by assignment."""

import time

from confluent_kafka import TopicPartition

from benchmarks.loads.clients.librdkafka import CountingConsumer, Settings
from benchmarks.machine import memory
from benchmarks.target import Target

# librdkafka's default limit of bytes that wait for the application.
QUEUE_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 120
RECORDS_PER_CALL = 10_000
# A call that takes this long waited for a client that had stopped fetching for a second.
STOP_SECONDS = 0.5


def throughput(target: Target, *, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Let librdkafka read the first `records` records of a topic."""
    partitions = target.partitions(topic)
    consumer = CountingConsumer(topic, {"bootstrap.servers": target.bootstrap, "group.id": "benchmark"})
    received, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    memory.warm(2 * QUEUE_BYTES)
    with target.measured() as spent:
        consumer.start(partitions)
        while received < records:
            received = consumer.receive(1000)
            if time.monotonic() > deadline:
                raise TimeoutError(f"read only {received} of {records} records")
    consumer.close()
    gigabytes = received * record_bytes / 1e9
    return {
        "MB/s": gigabytes * 1000 / spent.seconds,
        "broker CPU s/GB": spent.broker_cpu_seconds / gigabytes,
    }


def catch_up(
    target: Target, *, topic: str, records: int, record_bytes: int, settings: Settings
) -> dict[str, float]:
    """Read them as Python objects, in lists of up to 10,000, and count the stops of the client."""
    consumer = target.consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in target.partitions(topic)])
    received, stops, deadline = 0, 0, time.monotonic() + PATIENCE_SECONDS
    with target.measured() as spent:
        while received < records:
            began = time.monotonic()
            received += len(consumer.consume(RECORDS_PER_CALL, 1))
            now = time.monotonic()
            stops += now - began > STOP_SECONDS
            if now > deadline:
                raise TimeoutError(f"read only {received} of {records} records")
    consumer.close()
    return {"records/s": received / spent.seconds, "stops": stops}
