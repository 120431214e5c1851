"""The content of a topic after the crashes: read by a client, and in its files."""

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from millrace.wire.records import check_batch, iterate_batches

READ_SECONDS = 60
NOTHING_MORE_SECONDS = 20


@dataclass
class Stored:
    """One partition as a consumer sees it."""

    start_offset: int
    end_offset: int
    values: dict[int, bytes]
    """Offset to value, ascending."""


def watermarks(bootstrap: str, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """The start and end offset of each partition."""
    consumer = _consumer(bootstrap)
    try:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=READ_SECONDS)
            for index in range(partitions)
        }
    finally:
        consumer.close()


def read_all(
    bootstrap: str, topic: str, partition: int, *, patience_seconds: float = NOTHING_MORE_SECONDS
) -> Stored:
    """A partition from its start to its end, in the right order."""
    consumer = _consumer(bootstrap)
    try:
        whole = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(whole, READ_SECONDS)
        stored = Stored(low, high, {})
        consumer.assign([TopicPartition(topic, partition, low)])
        offset = low - 1
        while offset < high - 1:
            message = consumer.poll(patience_seconds)
            assert message is not None, f"partition {partition} gives nothing after offset {offset}"
            assert message.error() is None, message.error()
            assert message.offset() > offset, f"partition {partition} goes back to {message.offset()}"
            offset = message.offset()
            stored.values[offset] = message.value()
        stored.start_offset, _ = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), READ_SECONDS
        )
        stored.values = {at: value for at, value in stored.values.items() if at >= stored.start_offset}
        return stored
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            # Requests on a connection are answered in order: a long poll would delay the others.
            "fetch.wait.max.ms": 10,
            # Retention may remove the start while it is read; other gaps show in the offsets.
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )


def check_segments(directory: Path) -> int:
    """Check every batch in every segment of a partition's directory; returns their number."""
    batches = 0
    next_offset = 0
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        position = 0
        next_offset = max(next_offset, int(path.stem))
        for _, batch in iterate_batches(content):
            header = check_batch(batch)
            assert header.base_offset >= next_offset, f"{path}: offset {header.base_offset} comes twice"
            next_offset = header.next_offset
            position += header.size
            batches += 1
        assert position == len(content), f"{path}: {len(content) - position} bytes are no batch"
    return batches
