"""The cleaner's inner loops: the latest offset of every key, and which records of a batch stay."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from millrace.wire.record_numbers import LONGEST_LONG_BYTES, long_number, signed
from millrace.wire.records import NO_TIMESTAMP, BatchHeader, CorruptBatch, wrapped

LatestOffsets: TypeAlias = dict[bytes, int]

# A key shorter than this stands for itself, a longer one is replaced by a digest of exactly this length:
# the two never collide, and no key costs more than KEY_COST_BYTES.
STAND_IN_BYTES = 40
# Most memory that an entry of the dict takes while it grows: the key, the offset, the slots.
KEY_COST_BYTES = 200


class Survivors(NamedTuple):
    """The records of one batch that outlive a cleaning, as runs of their own bytes."""

    runs: list[bytes]
    record_count: int
    has_tombstones: bool
    timestamp_deltas: set[int]

    def max_timestamp(self, base_timestamp: int) -> int:
        """The newest survivor's timestamp."""
        timestamps = (wrapped(base_timestamp + signed(delta)) for delta in self.timestamp_deltas)
        return max(NO_TIMESTAMP, *timestamps)


def note_keys(payload: bytes, header: BatchHeader, latest_offsets: LatestOffsets) -> None:
    """Remember the offset of every keyed record; a later record replaces an earlier one.

    Nothing is remembered of a batch that cannot be read to its end: it raises CorruptBatch.
    """
    base_offset = header.base_offset
    latest_offsets.update(
        [(key, base_offset + delta) for _, _, delta, key, _ in _walk(payload, header) if key is not None]
    )


def keep_latest(
    payload: bytes, header: BatchHeader, latest_offsets: LatestOffsets, *, drop_tombstones: bool
) -> Survivors:
    """Pick the records that no later record of their key replaces; records without a key are dropped."""
    runs = []
    kept = start = run_start = 0
    has_tombstones = False
    timestamp_deltas = set()
    base_offset = header.base_offset
    for end, timestamp_delta, offset_delta, key, is_tombstone in _walk(payload, header):
        if (
            key is None
            or latest_offsets.get(key, -1) > base_offset + offset_delta
            or (is_tombstone and drop_tombstones)
        ):
            if start > run_start:
                runs.append(payload[run_start:start])
            run_start = end
        else:
            kept += 1
            timestamp_deltas.add(timestamp_delta)
            if is_tombstone:
                has_tombstones = True
        start = end
    if start > run_start:
        runs.append(payload[run_start:])
    return Survivors(runs, kept, has_tombstones, timestamp_deltas)


def _walk(payload: bytes, header: BatchHeader) -> Iterator[tuple[int, int, int, bytes | None, bool]]:
    """Each record's end, timestamp delta (zigzag), offset delta, key or its stand-in, if its value is null.

    Compaction walks every record, some twice, so variable-length numbers are decoded in place: one and two
    bytes inline, longer ones by a call. A zigzag number is negative when its lowest bit is set, and a
    negative length is that of null.

    Offsets decide which record of a key is the latest, so one outside its batch would remove records of
    others: it makes the batch unreadable.
    """
    position = 0
    next_offset_delta, end_offset_delta = 0, 2 * header.last_offset_delta + 2
    try:
        for _ in range(header.record_count):
            length = payload[position]
            position += 1
            if length > 127:
                following = payload[position]
                position += 1
                length += (following << 7) - 128
                if following > 127:
                    length, position = long_number(payload, position - 2, LONGEST_LONG_BYTES)
            end = position + (length >> 1)

            timestamp_delta = payload[position + 1]
            position += 2
            if timestamp_delta > 127:
                timestamp_delta, position = long_number(payload, position - 1, LONGEST_LONG_BYTES)

            offset_delta = payload[position]
            position += 1
            if offset_delta > 127:
                following = payload[position]
                position += 1
                offset_delta += (following << 7) - 128
                if following > 127:
                    offset_delta, position = long_number(payload, position - 2, LONGEST_LONG_BYTES)
            if not next_offset_delta <= offset_delta < end_offset_delta or offset_delta & 1:
                raise CorruptBatch(f"a record has the offset delta {signed(offset_delta)}")
            next_offset_delta = offset_delta + 2

            number = payload[position]
            position += 1
            if number > 127:
                number, position = long_number(payload, position - 1, LONGEST_LONG_BYTES)
            key_end = position if number & 1 else position + (number >> 1)
            if key_end >= end or length & 1:
                raise CorruptBatch("a record ends before its key does")
            key = None if number & 1 else payload[position:key_end]
            if number >= STAND_IN_BYTES << 1 and key is not None:
                key = blake2b(key, digest_size=STAND_IN_BYTES).digest()
            yield end, timestamp_delta, offset_delta >> 1, key, bool(payload[key_end] & 1)
            position = end
    except IndexError:
        raise CorruptBatch("the records end in the middle of a field") from None
    if position != len(payload):
        raise CorruptBatch(f"the records take {position} bytes, not {len(payload)}")
