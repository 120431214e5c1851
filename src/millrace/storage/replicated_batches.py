"""Batches that a follower copies from its leader: checked for damage and order, then kept as they are."""

from collections.abc import Iterator

from millrace.errors import Error, KafkaError
from millrace.wire.checksum import crc32c
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    read_header,
)


def replicated_batches(
    records: memoryview, end_offset: int, leader_epoch: int, partition: str
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in a leader's response; they go to end_offset or, after compaction, past it."""
    position = 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        size = header.size
        if header.magic != MAGIC or size < HEADER_BYTES or header.last_offset_delta < 0:
            raise CorruptBatch(f"The leader of {partition} sent bytes that are no record batch")
        batch = records[position : position + size]
        if len(batch) < size:
            # The response ended at its limit.
            return
        if crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
            raise CorruptBatch(f"A batch that the leader of {partition} sent has a wrong checksum")
        if header.base_offset < end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"The leader of {partition} sent offset {header.base_offset}; the log ends at {end_offset}",
            )
        if header.leader_epoch > leader_epoch:
            # Records of a later leader must not come before the logs were compared.
            raise KafkaError(
                Error.UNKNOWN_LEADER_EPOCH,
                f"The leader of {partition} is in epoch {leader_epoch} and sent a batch of epoch "
                f"{header.leader_epoch}",
            )
        yield header, batch
        end_offset = header.next_offset
        position += size
