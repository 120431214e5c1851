"""Whether the records of a batch are well-formed, found in one pass over their bytes."""

from typing import NamedTuple

from millrace.wire.record_numbers import LONGEST_LONG_BYTES, long_number, signed
from millrace.wire.records import CorruptBatch


class TooManyHeaders(Exception):
    """The records have more headers than the caller has time for."""


class CheckedRecords(NamedTuple):
    """Properties of well-formed records that a broker needs."""

    has_null_keys: bool
    timestamp_deltas: set[int]


def check_records(payload: bytes, count: int, most_headers: int | None = None) -> CheckedRecords:
    """Check every field of uncompressed records; raises CorruptBatch at the first fault.

    The offset delta of each record must be its place in the batch, as in every batch that a producer sends.

    Batches have up to a million records, so variable-length numbers of usual size are decoded in place, and
    longer ones by a call. A zigzag number is negative when its lowest bit is set, and a negative length is
    that of null. Fields that overrun their record are noticed where the record should end.
    """
    position = 0
    headers_left = len(payload) if most_headers is None else most_headers
    has_null_keys = False
    timestamp_deltas = set()
    last_timestamp_delta = -1
    try:
        for expected in range(0, 2 * count, 2):
            length = payload[position]
            position += 1
            if length > 127:
                length, position = (
                    (length + (payload[position] << 7) - 128, position + 1)
                    if payload[position] < 128
                    else long_number(payload, position - 1)
                )
            end = position + (length >> 1)

            timestamp_delta = payload[position + 1]
            position += 2
            if timestamp_delta > 127:
                timestamp_delta, position = long_number(payload, position - 1, LONGEST_LONG_BYTES)
            if timestamp_delta != last_timestamp_delta:
                timestamp_deltas.add(timestamp_delta)
                last_timestamp_delta = timestamp_delta

            offset_delta = payload[position]
            position += 1
            if offset_delta > 127:
                second, third = payload[position], payload[position + 1]
                offset_delta, position = (
                    (offset_delta + (second << 7) - 128, position + 1)
                    if second < 128
                    else (offset_delta + (second << 7) + (third << 14) - 16512, position + 2)
                    if third < 128
                    else long_number(payload, position - 1)
                )

            number = payload[position]
            position += 1
            if number > 127:
                number, position = long_number(payload, position - 1)
            has_null_keys = has_null_keys or bool(number & 1)
            position += 0 if number & 1 else number >> 1

            number = payload[position]
            position += 1
            if number > 127:
                number, position = (
                    (number + (payload[position] << 7) - 128, position + 1)
                    if payload[position] < 128
                    else long_number(payload, position - 1)
                )
            position += 0 if number & 1 else number >> 1

            if payload[position]:
                position, headers_left = _skip_headers(payload, position, end, headers_left)
            else:
                position += 1
            if position != end or length & 1 or offset_delta != expected:
                raise CorruptBatch(_fault(expected >> 1, offset_delta, position - end))
    except IndexError:
        raise CorruptBatch("The records end in the middle of a field") from None
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes follow the last of {count} records")
    return CheckedRecords(has_null_keys, set(map(signed, timestamp_deltas)))


def _skip_headers(payload: bytes, position: int, end: int, headers_left: int) -> tuple[int, int]:
    """The position behind a record's headers, and how many more headers may follow in later records."""
    count, position = long_number(payload, position)
    # Each takes two lengths at least, so a count that is a lie costs nothing.
    if count & 1 or count > min(end, len(payload)) - position:
        raise CorruptBatch(f"A record has no room for {signed(count)} headers")
    headers_left -= count >> 1
    if headers_left < 0:
        raise TooManyHeaders
    for _ in range(count >> 1):
        name_length, position = long_number(payload, position)
        if name_length & 1:
            raise CorruptBatch("A record's header has no name")
        content_length, position = long_number(payload, position + (name_length >> 1))
        position += 0 if content_length & 1 else content_length >> 1
        if position > end:
            raise CorruptBatch("A record's headers run past its end")
    return position, headers_left


def _fault(number: int, offset_delta: int, surplus: int) -> str:
    if offset_delta != 2 * number:
        return f"Record {number} of a batch has the offset delta {signed(offset_delta)}"
    return f"The fields of record {number} of a batch end {surplus} bytes behind the record's end"
