"""Time from a member's join to its first record, with librdkafka."""

import time

from confluent_kafka import Consumer, Producer

from benchmarks.loads.groups.settings import consumer_settings, new_group
from benchmarks.loads.latency import percentile
from benchmarks.target import Target

PATIENCE_SECONDS = 30


def after_joining(target: Target, *, topic: str, protocol: str, samples: int) -> dict[str, float]:
    """Let the only member of a new group subscribe and wait for an existing record."""
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, b"there already")
    producer.flush()
    milliseconds = [_first_record_ms(target, topic, protocol) for _ in range(samples)]
    return {"p50 ms": percentile(milliseconds, 50), "worst ms": max(milliseconds)}


def _first_record_ms(target: Target, topic: str, protocol: str) -> float:
    consumer = Consumer(consumer_settings(target.bootstrap, new_group(), protocol))
    started = time.perf_counter()
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_SECONDS)
    milliseconds = (time.perf_counter() - started) * 1000
    if message is None or message.error():
        raise RuntimeError(f"no record came: {message and message.error()}")
    consumer.close()
    return milliseconds
