"""A hash of values that is the same in every process, for fields grouping.

Python's own is salted. Values that Python takes for equal have the same hash: 1, 1.0 and True, a list and a
tuple of the same items. Dictionaries and sets hash by content, whatever their order.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

from millrace.topologies.model.errors import TopologyError


def stable_hash(value: Any) -> int:
    """A number from 0 to 2**32 - 1."""
    return zlib.crc32(_bytes_of(value))


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b" + bytes(value)
    if isinstance(value, (int, float)):
        return _bytes_of_number(value)
    if value is None:
        return b"0"
    if isinstance(value, Mapping):
        items = sorted(_bytes_of(item) for item in value.items())
        return b"m" + _joined(items)
    if isinstance(value, Set):
        return b"S" + _joined(sorted(map(_bytes_of, value)))
    if isinstance(value, Sequence):
        return b"l" + _joined(list(map(_bytes_of, value)))
    raise TopologyError(
        f"a fields grouping cannot use a value of type {type(value).__name__}: "
        "group by text, bytes, numbers, None, or lists and dictionaries of these"
    )


def _bytes_of_number(value: float) -> bytes:
    if isinstance(value, float) and not value.is_integer():
        return b"f" + repr(value).encode()
    return b"n" + str(int(value)).encode()


def _joined(parts: list[bytes]) -> bytes:
    # With their lengths, so that ["ab", "c"] and ["a", "bc"] differ.
    return b"".join(len(part).to_bytes(4) + part for part in parts)
