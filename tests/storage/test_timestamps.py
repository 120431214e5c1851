"""ListOffsets by timestamp."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage.inspection import FoundRecord
from millrace.storage.log import Log
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch

from .by_time import first_at_or_after, newest

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def append_at(log, *timestamps, codec=Codec.NONE, leader_epoch=0):
    records = [Record(number, timestamp, None, b"x" * 20) for number, timestamp in enumerate(timestamps)]
    log.append(memoryview(build_batch(records, codec=codec)), leader_epoch)


def test_an_empty_log_has_no_timestamps(open_log):
    log = open_log()
    assert first_at_or_after(log, 0) is None
    assert newest(log) is None


@pytest.mark.parametrize("codec", list(Codec))
def test_the_record_itself_is_found_within_its_batch(open_log, codec):
    log = open_log()
    append_at(log, 100, 200, 300, codec=codec)
    append_at(log, 400, 500, codec=codec, leader_epoch=3)
    assert first_at_or_after(log, 150) == FoundRecord(1, 200, 0)
    assert first_at_or_after(log, 300) == FoundRecord(2, 300, 0)
    assert first_at_or_after(log, 301) == FoundRecord(3, 400, 3)
    assert first_at_or_after(log, 501) is None
    assert newest(log) == FoundRecord(4, 500, 3)


def test_deleted_records_are_not_found(open_log):
    log = open_log()
    append_at(log, 100, 200, 300)
    log.delete_records_before(2)
    assert first_at_or_after(log, 0) == FoundRecord(2, 300, 0)


def test_log_append_time_is_the_time_of_the_batch(open_log, clock):
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime"))
    append_at(log, 1, 2, 3)
    assert first_at_or_after(log, 5) == FoundRecord(0, clock.now_ms(), 0)
    assert newest(log) == FoundRecord(0, clock.now_ms(), 0)


batches = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=40)


@given(batches, st.booleans())
@settings(deadline=None, max_examples=40)
def test_any_timestamps_are_found_as_in_a_plain_list(tmp_path_factory, timestamp_lists, reopen):
    directory = tmp_path_factory.mktemp("timestamps") / "events-0"
    log = Log.open(directory, SMALL, clock=Clock(), disk=Disk())
    for timestamps in timestamp_lists:
        append_at(log, *timestamps)
    if reopen:
        log.close()
        log = Log.open(directory, SMALL, clock=Clock(), disk=Disk(), clean=True)
    plain = [timestamp for timestamps in timestamp_lists for timestamp in timestamps]
    for target in range(52):
        expected = next((offset for offset, timestamp in enumerate(plain) if timestamp >= target), None)
        found = first_at_or_after(log, target)
        assert (found.offset if found else None) == expected
    largest = newest(log)
    assert largest is not None
    assert plain[largest.offset] == largest.timestamp_ms == max(plain)
    log.abandon()
