"""Produce throughput: librdkafka fills its batches and sends as fast as responses allow."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from benchmarks.loads.clients.librdkafka import BatchProducer, Settings
from benchmarks.machine import memory
from benchmarks.target import Spent, Target

# A queue that is never empty, and batches up to Kafka's default message limit.
BATCH_RECORDS = 100_000
SETTINGS: Settings = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": BATCH_RECORDS,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
# Sent at once, while the memory that was touched before is still mapped.
BURST_BYTES = 100_000_000


def throughput(
    target: Target,
    *,
    topic: str,
    records: int,
    record_bytes: int,
    acks: str = "all",
    idempotent: bool = False,
) -> dict[str, float]:
    """Send `records` records, to partitions that librdkafka chooses, and wait until all are acknowledged."""
    settings: Settings = {"acks": acks, "enable.idempotence": str(idempotent).lower()}
    producer = _producer(target, topic, record_bytes, settings)
    per_burst = BURST_BYTES // record_bytes
    # From here on, the sender has all the memory it needs.
    producer.send(min(per_burst, records))
    spent = Spent()
    with _arrival(target, topic, records):
        for first in range(0, records, per_burst):
            # The log's pages and the sockets' buffers.
            memory.warm(3 * BURST_BYTES)
            with target.measured(spent):
                producer.send(min(per_burst, records - first))
    producer.close()
    gigabytes = records * record_bytes / 1e9
    return {
        "MB/s": gigabytes * 1000 / spent.seconds,
        "broker CPU s/GB": spent.broker_cpu_seconds / gigabytes,
    }


def filled(
    target: Target, *, topic: str, records: int, record_bytes: int, batch_records: int = BATCH_RECORDS
) -> dict[str, float]:
    """Fill a topic with `records` records, spread evenly over its partitions."""
    settings: Settings = {"batch.num.messages": batch_records}
    producer = _producer(target, topic, record_bytes, settings, target.partitions(topic))
    with _arrival(target, topic, records):
        producer.send(records)
    producer.close()
    return {}


def _producer(
    target: Target, topic: str, record_bytes: int, settings: Settings, partitions: Iterable[int] = ()
) -> BatchProducer:
    settings = {**SETTINGS, "bootstrap.servers": target.bootstrap, **settings}
    return BatchProducer(topic, b"x" * record_bytes, settings, partitions=partitions)


@contextmanager
def _arrival(target: Target, topic: str, records: int) -> Iterator[None]:
    """Check that the block adds this many records to a topic."""
    before = target.record_count(topic)
    yield
    arrived = target.record_count(topic) - before
    if arrived != records:
        raise RuntimeError(f"sent {records} records, but {topic} has {arrived} more")
