"""Consume throughput: reads a whole topic from its beginning, by assignment."""

import time

from confluent_kafka import TopicPartition

from benchmarks.loads.clients.librdkafka import CountingConsumer
from benchmarks.machine import memory
from benchmarks.target import Target

# librdkafka's default limit of bytes that wait for the application.
QUEUE_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 120


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


def throughput_in_python(target: Target, *, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Read them as Python objects, in lists of up to 1000."""
    consumer = target.consumer()
    consumer.assign([TopicPartition(topic, number, 0) for number in target.partitions(topic)])
    received, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    with target.measured() as spent:
        while received < records:
            received += len(consumer.consume(1000, 1))
            if time.monotonic() > deadline:
                raise TimeoutError(f"read only {received} of {records} records")
    consumer.close()
    return {"records/s": received / spent.seconds}
