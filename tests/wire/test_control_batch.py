"""Markers, byte for byte as Apache Kafka writes them."""

import pytest

from millrace.wire.control_batch import END_MARKER_BYTES, EndMarker, build_end_marker, read_end_marker
from millrace.wire.records import CONTROL_BIT, CorruptBatch, Record, build_batch, check_batch, iterate_records


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_is_read_back(committed: bool) -> None:
    batch = build_end_marker(EndMarker(committed, 7), producer_id=5, producer_epoch=3, timestamp=1000)
    header = check_batch(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert header.max_timestamp == 1000
    assert read_end_marker(batch) == EndMarker(committed, 7)
    assert len(batch) == END_MARKER_BYTES


def test_keys_and_values_are_kafkas() -> None:
    for committed, key in ((False, "00000000"), (True, "00000001")):
        (record,) = iterate_records(build_end_marker(EndMarker(committed, 258), 1, 0, 0))
        assert (record.key, record.value) == (bytes.fromhex(key), bytes.fromhex("000000000102"))


def test_other_control_records_are_no_markers() -> None:
    leader_change = build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0")], attributes=CONTROL_BIT)
    assert read_end_marker(leader_change) is None


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\1", b"\0\0")])
def test_a_cut_off_control_record_is_corrupt(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_end_marker(build_batch([Record(0, 0, key, value)], attributes=CONTROL_BIT))
