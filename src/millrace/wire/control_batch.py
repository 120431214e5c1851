"""Control batches: the markers that end a transaction, written by the broker and never shown to readers."""

import struct
from typing import NamedTuple

from millrace.wire.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
    CorruptBatch,
    Record,
    build_batch,
    iterate_records,
)

ABORT, COMMIT = 0, 1
END_MARKER_BYTES = 78

_VERSION = 0
# Version and type; version and the epoch of the coordinator. Later versions may only add to them.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """What a marker says."""

    committed: bool
    coordinator_epoch: int


def build_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    """A batch of one marker, which ends the producer's transaction."""
    key = _KEY.pack(_VERSION, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None where compaction has emptied it or it says something else."""
    for record in iterate_records(batch):
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in (ABORT, COMMIT):
                return None
            _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        except struct.error:
            raise CorruptBatch("A control record is too short") from None
        return EndMarker(kind == COMMIT, coordinator_epoch)
    return None
