"""End-to-end latency: from produce() until a waiting consumer has the record."""

import time

from confluent_kafka import Producer, TopicPartition

from benchmarks.loads.latency import measure_latency
from benchmarks.target import Target


def latency(target: Target, *, topic: str, samples: int, record_bytes: int) -> dict[str, float]:
    """Produce one record, wait until the consumer has it, and repeat."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "1", "linger.ms": 0})
    consumer = target.consumer()
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, end)])
    sent = 0

    def one_record() -> float:
        nonlocal sent
        sent += 1
        value = sent.to_bytes(record_bytes, "big")
        sent_at = time.perf_counter_ns()
        producer.produce(topic, value, partition=0)
        message = consumer.poll(10)
        received_at = time.perf_counter_ns()
        if message is None or message.error() or message.value() != value:
            raise RuntimeError(f"record {sent} did not come back: {message and message.error()}")
        producer.poll(0)
        return (received_at - sent_at) / 1e6

    figures = measure_latency(target, one_record, samples)
    producer.flush(10)
    consumer.close()
    return figures
