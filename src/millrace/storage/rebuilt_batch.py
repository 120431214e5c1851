"""Batches as compaction leaves them: thinned out, stamped with a delete horizon, or empty."""

from millrace.storage.record_filter import Survivors
from millrace.wire.compression import Codec, compress
from millrace.wire.records import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    assemble,
    read_header,
    shift_timestamps,
)


def thin_out(header: BatchHeader, survivors: Survivors, codec: Codec) -> bytes:
    """A batch of only the surviving records; they keep their bytes, so the base timestamp stays too."""
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = survivors.max_timestamp(header.base_timestamp)
    thinned = header._replace(
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp=max_timestamp,
        record_count=survivors.record_count,
    )
    return assemble(thinned, compress(codec, b"".join(survivors.runs)))


def stamp_horizon(batch: bytes, codec: Codec, horizon_ms: int) -> bytes:
    """Write the time at which tombstones may be dropped into an uncompressed batch, as base timestamp.

    Keys, values and headers keep their bytes, whatever is in them.
    """
    header = read_header(batch)
    payload = shift_timestamps(batch[HEADER_BYTES:], header.record_count, header.base_timestamp - horizon_ms)
    stamped = header._replace(
        attributes=header.attributes & ~CODEC_MASK | codec | DELETE_HORIZON_BIT, base_timestamp=horizon_ms
    )
    return assemble(stamped, compress(codec, payload))


def emptied(header: BatchHeader, batch: bytes) -> bytes:
    """A batch without its records, which still holds its offsets and its producer's sequence numbers."""
    if not header.record_count:
        return batch
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
