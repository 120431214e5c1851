"""The zigzag numbers of records, for code that reads the fields of a batch one by one."""

from __future__ import annotations

from millrace.wire.records import CorruptBatch

# Lengths, counts and offset deltas are 32-bit numbers, timestamp deltas 64-bit ones.
LONGEST_INT_BYTES = 5
LONGEST_LONG_BYTES = 10


def long_number(payload: bytes, position: int, longest: int = LONGEST_INT_BYTES) -> tuple[int, int]:
    """A zigzag number of at most `longest` bytes, and the position after it."""
    number = shift = 0
    while True:
        byte = payload[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift >= 7 * longest:
            raise CorruptBatch("A variable-length number is too long")


def signed(zigzag: int) -> int:
    """The number that a zigzag number stands for."""
    return (zigzag >> 1) ^ -(zigzag & 1)
