"""Finding offsets by timestamp."""

from collections.abc import Sequence
from typing import NamedTuple

from millrace.storage.segment import Segment
from millrace.wire.records import BatchHeader, iterate_records


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record from start_offset on whose timestamp is at least the given one."""
    for segment in segments:
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _first_in(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    # Up to and including this entry's batch, every earlier batch is older than the timestamp.
    entry = segment.time_index.floor_timestamp(timestamp_ms - 1)
    located = segment.locate(max(entry.offset if entry else segment.base_offset, start_offset))
    if located is None:
        return None
    for position, header in segment.headers(located[0]):
        if header.max_timestamp >= timestamp_ms:
            found = _first_record(segment, position, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    for record in iterate_records(segment.read_batch(position, header)):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def latest(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all."""
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp_ms = newest.max_timestamp
    located = newest.locate(newest.max_timestamp_offset) if timestamp_ms >= 0 else None
    if located is None:
        return None
    position, header = located
    return _first_record(newest, position, header, timestamp_ms, 0)
