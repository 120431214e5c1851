"""Consume throughput: librdkafka reads a whole topic from its beginning, by assignment."""

import time

from confluent_kafka import TopicPartition

from benchmarks.target import Target


def throughput(target: Target, *, topic: str, records: int, record_bytes: int) -> dict[str, float]:
    """Read the first `records` records of a topic."""
    consumer = target.consumer(
        queued_min_messages=1_000_000,
        queued_max_messages_kbytes=262_144,
        fetch_message_max_bytes=4_194_304,
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    received, deadline = 0, time.monotonic() + 120
    with target.measured() as spent:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while received < records:
            received += len(consumer.consume(num_messages=10_000, timeout=1))
            if time.monotonic() > deadline:
                raise TimeoutError(f"read only {received} of {records} records")
    consumer.close()
    gigabytes = received * record_bytes / 1e9
    return {
        "MB/s": gigabytes * 1000 / spent.seconds,
        "broker CPU s/GB": spent.broker_cpu_seconds / gigabytes,
    }
