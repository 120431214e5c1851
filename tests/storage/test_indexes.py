"""The index files: Kafka's bytes, and lookups across what is stored and what is still in memory."""

import struct
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.disk import Disk
from millrace.storage import indexes
from millrace.storage.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampEntry

READ_AT = Disk.read_at


@pytest.fixture
def offset_index(tmp_path):
    return OffsetIndex(tmp_path / "index", 1000, Disk(), 0)


@pytest.fixture
def time_index(tmp_path):
    return TimeIndex(tmp_path / "timeindex", 1000, Disk(), 0)


def test_offset_entries_are_relative_offset_and_position(offset_index):
    offset_index.append(1007, 300)
    offset_index.append(1012, 700)
    offset_index.write()
    assert offset_index.path.read_bytes() == struct.pack(">iiii", 7, 300, 12, 700)


def test_time_entries_are_timestamp_and_relative_offset(time_index):
    time_index.append_if_later(5_000_000_000_000, 1007)
    time_index.write()
    assert time_index.path.read_bytes() == struct.pack(">qi", 5_000_000_000_000, 7)


def test_timestamps_only_ascend(time_index):
    for timestamp, offset in ((10, 1001), (10, 1002), (9, 1003), (11, 1004)):
        time_index.append_if_later(timestamp, offset)
    assert len(time_index) == 2
    assert time_index.last() == TimestampEntry(11, 1004)


def test_a_reopened_time_index_continues(time_index):
    time_index.append_if_later(10, 1001)
    time_index.write()
    reopened = TimeIndex(time_index.path, 1000, Disk(), 12)
    reopened.append_if_later(10, 1002)
    reopened.append_if_later(11, 1003)
    reopened.write()
    assert len(time_index.path.read_bytes()) == 24


def test_a_write_cuts_what_an_earlier_life_left_behind(offset_index):
    offset_index.path.write_bytes(b"\xff" * 100)
    offset_index.append(1001, 10)
    offset_index.write()
    assert offset_index.path.stat().st_size == 8


def test_an_empty_index_finds_nothing(offset_index, time_index):
    assert offset_index.last() is None
    assert offset_index.floor_offset(2000) is None
    assert offset_index.floor_position(2000) is None
    assert time_index.floor_timestamp(2000) is None


def test_entries_move_to_the_file_in_blocks(offset_index, monkeypatch):
    monkeypatch.setattr("millrace.storage.indexes._MAX_BUFFERED_BYTES", 32)
    for number in range(10):
        offset_index.append(1001 + number, number + 1)
    assert offset_index.path.stat().st_size == 64
    assert len(offset_index) == 10
    assert [offset_index.floor_offset(1001 + number) for number in range(10)] == [
        (1001 + number, number + 1) for number in range(10)
    ]


@given(
    st.lists(st.integers(1, 20), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([2, 5, 512]),
)
def test_lookups_agree_with_a_plain_list(tmp_path_factory, steps, stored, truncated, window):
    with patch.object(indexes, "_WINDOW_ENTRIES", window):
        check_lookups(tmp_path_factory, steps, stored, truncated)


def check_lookups(tmp_path_factory, steps, stored, truncated):
    path = tmp_path_factory.mktemp("index") / "index"
    index = OffsetIndex(path, 1000, Disk(), 0)
    plain = []
    offset = 1000
    for number, step in enumerate(steps):
        if number == stored:
            index.write()
        offset += step
        plain.append(OffsetPosition(offset, 3 * offset))
        index.append(*plain[-1])
    bound = 1000 + 5 * truncated
    index.truncate(bound)
    plain = [entry for entry in plain if entry.offset <= bound]
    assert len(index) == len(plain)
    assert index.last() == (plain[-1] if plain else None)
    assert index.from_end(3) == (plain[-3:][0] if plain else None)
    for probe in (*range(1000, offset + 2), *range(offset + 1, 999, -7)):
        at_or_before = [entry for entry in plain if entry.offset <= probe]
        assert index.floor_offset(probe) == (at_or_before[-1] if at_or_before else None)
        assert index.floor_position(3 * probe) == (at_or_before[-1] if at_or_before else None)
    index.write()
    assert path.read_bytes() == b"".join(struct.pack(">ii", o - 1000, p) for o, p in plain)


@pytest.mark.parametrize("window", [1, 2, 512])
@pytest.mark.parametrize("left_bytes", [0, 3, 8, 13])
def test_a_search_in_a_file_that_has_become_shorter_ends_where_the_file_does(
    tmp_path, monkeypatch, left_bytes, window
):
    monkeypatch.setattr(indexes, "_WINDOW_ENTRIES", window)
    offset_index, time_index = (
        kind(tmp_path / kind.__name__, 0, Disk(), 0) for kind in (OffsetIndex, TimeIndex)
    )
    for number in range(1, 4):
        offset_index.append(number, 10 * number)
        time_index.append_if_later(number, number)
    for index in (offset_index, time_index):
        index.write()
        with index.path.open("rb+") as file:
            file.truncate(left_bytes)
    entry = offset_index.floor_position(15)
    assert entry == (OffsetPosition(1, 10) if left_bytes >= 8 else None)
    stamped = time_index.floor_timestamp(1)
    assert stamped == (TimestampEntry(1, 1) if left_bytes >= 12 else None)


def test_an_entry_that_is_gone_is_a_failure_of_the_disk(offset_index):
    for number in range(1, 4):
        offset_index.append(1000 + number, 10 * number)
    offset_index.write()
    offset_index.path.write_bytes(b"")
    with pytest.raises(OSError, match="has become shorter"):
        offset_index.last()


def test_a_search_anywhere_in_a_large_file_reads_it_once(offset_index, monkeypatch):
    for number in range(100 * 512):
        offset_index.append(1001 + number, 10 * number)
    offset_index.write()
    far_apart = range(1001, 1001 + 100 * 512, 2000)
    for offset in far_apart:
        offset_index.floor_offset(offset)
    reads = []
    monkeypatch.setattr(Disk, "read_at", lambda *asked: reads.append(asked) or READ_AT(*asked))
    for offset in far_apart:
        assert offset_index.floor_offset(offset) == (offset, 10 * (offset - 1001))
    assert len(reads) == len(far_apart)


def test_what_a_search_remembers_goes_with_the_entries(offset_index, monkeypatch):
    monkeypatch.setattr(indexes, "_WINDOW_ENTRIES", 2)
    for spacing in (10, 1000):
        for number in range(20):
            offset_index.append(1001 + number, spacing * number)
        offset_index.write()
        assert offset_index.floor_position(spacing * 13 + 1) == (1014, spacing * 13)
        offset_index.clear()
