"""Records are accepted where every field is right, and refused at the first that is not."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.wire.record_checks import check_records
from millrace.wire.records import (
    HEADER_BYTES,
    CorruptBatch,
    Record,
    build_batch,
    encode_record,
    iterate_payload,
    read_header,
)

from .. import crafted

NOW_MS = 1_700_000_000_000

contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)
fields = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), contents, contents, headers), min_size=1, max_size=300
)


@given(fields)
def test_whatever_a_producer_sends_is_accepted(fields):
    records = [Record(number, NOW_MS + delta, *rest) for number, (delta, *rest) in enumerate(fields)]
    payload = build_batch(records)[HEADER_BYTES:]
    checked = check_records(payload, len(records))
    assert checked.has_null_keys == any(record.key is None for record in records)
    assert {records[0].timestamp + delta for delta in checked.timestamp_deltas} == {
        record.timestamp for record in records
    }


@pytest.mark.parametrize("count", [127, 128, 129, 8193, 16385])
def test_offsets_of_any_length_are_read(count):
    check_records(b"".join(encode_record(number, 0, b"", b"") for number in range(count)), count)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 10_000, 1_100_000])
def test_lengths_of_any_length_are_read(size):
    content = b"." * size
    check_records(encode_record(0, 2**62, content, content, (("." * size, content),)), 1)


@pytest.mark.parametrize("fault", crafted.BROKEN_RECORDS)
def test_a_broken_record_is_refused(fault):
    with pytest.raises(CorruptBatch):
        check_records(crafted.BROKEN_RECORDS[fault], 1)


@pytest.mark.parametrize("fault", crafted.BROKEN_HEADERS)
def test_a_broken_header_is_refused(fault):
    with pytest.raises(CorruptBatch):
        check_records(crafted.record(headers=crafted.BROKEN_HEADERS[fault]), 1)


def test_a_value_that_runs_past_its_record_is_refused():
    with pytest.raises(CorruptBatch):
        check_records(crafted.BROKEN_VALUE + crafted.record(1) * 100, 2)


@pytest.mark.parametrize("offsets", crafted.WRONG_OFFSETS)
def test_an_offset_that_is_not_the_records_place_is_refused(offsets):
    deltas = crafted.WRONG_OFFSETS[offsets]
    with pytest.raises(CorruptBatch, match="offset delta"):
        check_records(b"".join(map(crafted.record, deltas)), len(deltas))


@given(st.binary(max_size=300), st.integers(1, 20))
# More headers than the payload has bytes, in a record that claims to be longer than the payload.
@example(b"\x80\x01\x00\x00\x00\x00\x00\x12", 1)
def test_random_bytes_are_refused_or_are_records(payload, count):
    try:
        check_records(payload, count)
    except CorruptBatch:
        return
    header = read_header(crafted.batch([payload], count=count))
    assert [record.offset for record in iterate_payload(payload, header)] == list(range(count))
