"""One record at a time through librdkafka: the next one is sent when the last is acknowledged."""

import time

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.loads.latency import measure_latency
from benchmarks.target import Target


def latency(
    target: Target, *, topic: str, samples: int, record_bytes: int, acks: str = "1"
) -> dict[str, float]:
    """Time from produce() to the delivery report, with one record in flight."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": acks, "linger.ms": 0})
    value = b"x" * record_bytes
    acknowledged_at: list[int] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        acknowledged_at.append(time.perf_counter_ns())

    def one_record() -> float:
        sent_at = time.perf_counter_ns()
        number = len(acknowledged_at)
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        while len(acknowledged_at) <= number:
            producer.poll(10)
        return (acknowledged_at[number] - sent_at) / 1e6

    return measure_latency(target, one_record, samples)
