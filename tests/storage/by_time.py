"""Records found by their timestamps, without the broker that reads large batches elsewhere."""

from millrace.storage.inspection import FoundRecord, find_by_time
from millrace.storage.log import Log
from millrace.wire.records import read_header


def first_at_or_after(log: Log, timestamp_ms: int) -> FoundRecord | None:
    """The first record that is not older."""
    start_offset = log.log_start_offset
    while (batch := log.batch_by_timestamp(timestamp_ms, start_offset)) is not None:
        found = find_by_time(batch, timestamp_ms, start_offset)
        if found is not None:
            return found
        start_offset = read_header(batch).next_offset
    return None


def newest(log: Log) -> FoundRecord | None:
    """The first record that has the largest timestamp."""
    batch = log.newest_batch()
    return None if batch is None else find_by_time(batch, read_header(batch).max_timestamp, 0)
