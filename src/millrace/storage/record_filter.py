"""The cleaner's inner loops: the latest offset of every key, and which records of a batch stay."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from millrace.wire.records import CorruptBatch

LatestOffsets: TypeAlias = dict[bytes, int]

# A key shorter than this stands for itself, a longer one is replaced by a digest of exactly this length:
# the two never meet, and no key costs more than KEY_COST_BYTES.
STAND_IN_BYTES = 40
# What one entry of the dict takes at worst, while it grows: the key, the offset, the slots.
KEY_COST_BYTES = 200

_NULL_LENGTH = 1


class Survivors(NamedTuple):
    """The records of one batch that outlive a cleaning, as runs of their own bytes."""

    runs: list[bytes]
    record_count: int
    has_tombstones: bool
    timestamp_deltas: set[int]

    @property
    def max_timestamp_delta(self) -> int:
        """The newest survivor's, relative to the batch's base timestamp."""
        return max(_signed(delta) for delta in self.timestamp_deltas)


def note_keys(payload: bytes, count: int, base_offset: int, latest_offsets: LatestOffsets) -> None:
    """Remember the offset of every keyed record; a later record replaces an earlier one."""
    for _, _, offset_delta, key, _ in _walk(payload, count):
        if key is not None:
            latest_offsets[key] = base_offset + offset_delta


def keep_latest(
    payload: bytes, count: int, base_offset: int, latest_offsets: LatestOffsets, *, drop_tombstones: bool
) -> Survivors:
    """Pick the records that no later record of their key replaces; those without a key go."""
    runs = []
    kept = start = run_start = 0
    has_tombstones = False
    timestamp_deltas = set()
    for end, timestamp_delta, offset_delta, key, is_tombstone in _walk(payload, count):
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


def _walk(payload: bytes, count: int) -> Iterator[tuple[int, int, int, bytes | None, bool]]:
    """Each record's end, timestamp delta (zigzag), offset delta, key or its stand-in, if its value is null.

    Compaction walks every record, some twice, so variable-length numbers are decoded in place: one and two
    bytes inline, longer ones by a call. A zigzag number is negative when its lowest bit is set.
    """
    position = 0
    try:
        for _ in range(count):
            number = payload[position]
            position += 1
            if number > 127:
                following = payload[position]
                position += 1
                number += (following << 7) - 128
                if following > 127:
                    number, position = _long_number(payload, position - 2)
            if number & 1:
                raise CorruptBatch("a record has a negative length")
            end = position + (number >> 1)

            timestamp_delta = payload[position + 1]
            position += 2
            if timestamp_delta > 127:
                timestamp_delta, position = _long_number(payload, position - 1)

            offset_delta = payload[position]
            position += 1
            if offset_delta > 127:
                following = payload[position]
                position += 1
                offset_delta += (following << 7) - 128
                if following > 127:
                    offset_delta, position = _long_number(payload, position - 2)

            number = payload[position]
            position += 1
            if number > 127:
                number, position = _long_number(payload, position - 1)
            key = None
            key_end = position + (number >> 1)
            if not number & 1:
                key = payload[position:key_end]
                if number >= STAND_IN_BYTES << 1:
                    key = blake2b(key, digest_size=STAND_IN_BYTES).digest()
            yield end, timestamp_delta, offset_delta >> 1, key, payload[key_end] == _NULL_LENGTH
            position = end
    except IndexError:
        raise CorruptBatch("the records end in the middle of a field") from None
    if position != len(payload):
        raise CorruptBatch(f"the records take {position} bytes, not {len(payload)}")


def _long_number(payload: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = payload[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise CorruptBatch("a variable-length number is too long")


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)
