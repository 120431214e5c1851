"""Control batches: the markers that end a transaction, written by the broker and never shown to readers."""

import struct
from typing import NamedTuple

from millrace.wire.checksum import crc32c
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    CRC_POSITION,
    TRANSACTIONAL_BIT,
    Buffer,
    CorruptBatch,
    Record,
    build_batch,
    iterate_records,
)

ABORT, COMMIT = 0, 1
_VERSION = 0
# Version and type; version and the epoch of the coordinator. Later versions may only add to them.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_CRC = struct.Struct(">I")


class EndMarker(NamedTuple):
    """The content of a marker."""

    committed: bool
    coordinator_epoch: int


def _template(kind: int) -> bytes:
    record = Record(0, 0, _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, 0))
    return build_batch([record], attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


# All markers have the same length, so they are made from one, at a tenth of the cost of building them.
_ABORT, _COMMIT = _template(ABORT), _template(COMMIT)
END_MARKER_BYTES = len(_COMMIT)
# Base and max timestamp, producer id, producer epoch.
_IDENTITY = struct.Struct(">qqqh")
_IDENTITY_POSITION = 27
_COORDINATOR_EPOCH = struct.Struct(">i")
_COORDINATOR_EPOCH_POSITION = END_MARKER_BYTES - 5


def build_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    """A batch of one marker, which ends the producer's transaction."""
    batch = bytearray(_COMMIT if marker.committed else _ABORT)
    _IDENTITY.pack_into(batch, _IDENTITY_POSITION, timestamp, timestamp, producer_id, producer_epoch)
    _COORDINATOR_EPOCH.pack_into(batch, _COORDINATOR_EPOCH_POSITION, marker.coordinator_epoch)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    return bytes(batch)


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
