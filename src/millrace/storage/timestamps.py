"""Finding records by timestamp: the batch that holds them, by indexes and headers."""

from collections.abc import Sequence

from millrace.storage.segment import Segment


def first_at_or_after(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> bytes | None:
    """The first batch that reaches start_offset and whose header promises a timestamp as late as this.

    A header may be wrong about its records, or only those before start_offset are as late; the search then
    continues behind the batch.
    """
    for segment in segments:
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _first_in(segment: Segment, timestamp_ms: int, start_offset: int) -> bytes | None:
    # Up to and including this entry's batch, every earlier batch is older than the timestamp.
    entry = segment.time_index.floor_timestamp(timestamp_ms - 1)
    located = segment.locate(max(entry.offset if entry else segment.base_offset, start_offset))
    if located is None:
        return None
    for position, header in segment.headers(located[0]):
        if header.max_timestamp >= timestamp_ms:
            return segment.read_batch(position, header)
    return None


def latest(segments: Sequence[Segment]) -> bytes | None:
    """The first batch with the largest timestamp of all; None if no record has a timestamp."""
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    located = newest.locate(newest.max_timestamp_offset) if newest.max_timestamp >= 0 else None
    if located is None:
        return None
    position, header = located
    return newest.read_batch(position, header)
