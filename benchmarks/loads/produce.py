"""Produce throughput: librdkafka fills its batches and sends as fast as answers allow."""

from benchmarks import memory
from benchmarks.librdkafka import BatchProducer, Settings
from benchmarks.target import Spent, Target

# Enough queue for the sender never to run dry, and batches up to Kafka's default message limit.
SETTINGS: Settings = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
# Sent in one go, so quickly that the memory touched before is still there.
BURST_BYTES = 100_000_000


def throughput(
    target: Target,
    *,
    topic: str,
    records: int,
    record_bytes: int,
    acks: str = "all",
    idempotent: bool = False,
    batch_records: int = 100_000,
    evenly: bool = False,
) -> dict[str, float]:
    """Send `records` records and wait for the last acknowledgement.

    They go where librdkafka's partitioner sends them, unless all partitions are to get as many.
    """
    settings = {**SETTINGS, "bootstrap.servers": target.bootstrap, "acks": acks}
    settings |= {"enable.idempotence": str(idempotent).lower(), "batch.num.messages": batch_records}
    partitions = target.partitions(topic) if evenly else ()
    producer = BatchProducer(topic, b"x" * record_bytes, settings, partitions=partitions)
    producer.send(1000)
    before = target.record_count(topic)
    spent = Spent()
    for first in range(0, records, per_burst := BURST_BYTES // record_bytes):
        # The log's pages, the sender's queue and the sockets' buffers.
        memory.warm(3 * BURST_BYTES)
        with target.measured(spent):
            producer.send(min(per_burst, records - first))
    producer.close()
    arrived = target.record_count(topic) - before
    if arrived != records:
        raise RuntimeError(f"sent {records} records, but {topic} has {arrived} more")
    gigabytes = records * record_bytes / 1e9
    return {
        "MB/s": gigabytes * 1000 / spent.seconds,
        "broker CPU s/GB": spent.broker_cpu_seconds / gigabytes,
    }
