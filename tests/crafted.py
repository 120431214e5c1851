"""Batches that no client library writes: framing and checksums are correct, records are not."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.wire.compression import Codec, compress
from millrace.wire.records import MAGIC, BatchHeader, assemble

NULL = -1
LAST_TIMESTAMP = 2**63 - 1


def varint(value: int) -> bytes:
    """A zigzag number, as records encode them."""
    number = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def field(content: bytes | None) -> bytes:
    return varint(NULL) if content is None else varint(len(content)) + content


def body(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: bytes = b"\0",
) -> bytes:
    """A record without its length; `headers` begins with their number."""
    return b"\0" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value) + headers


def record(offset_delta: int = 0, **fields: object) -> bytes:
    """A record with a correct length."""
    return field(body(offset_delta, **fields))


def batch(
    records: Iterable[bytes],
    *,
    count: int = 1,
    timestamp: int = 0,
    max_timestamp: int | None = None,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
) -> bytes:
    """A batch with a correct checksum around any bytes as records."""
    latest = timestamp if max_timestamp is None else max_timestamp
    header = BatchHeader(base_offset, 0, -1, MAGIC, 0, codec, count - 1, timestamp, latest, -1, -1, -1, count)
    return assemble(header, compress(codec, b"".join(records)))


HEADER = varint(1) + field(b"name") + field(b"content")

# Headers that cannot be read, after a record that is correct up to them.
BROKEN_HEADERS = {
    "null header name": varint(1) + field(None) + field(b"content"),
    "negative header count": varint(-1),
    "more headers than there are": varint(5) + field(b"name") + field(b"content"),
    "billions of headers": varint(2**31 - 1),
    "header name past the end": varint(1) + varint(100) + b"name" + field(b"content"),
    "header content past the end": varint(1) + field(b"name") + varint(100) + b"content",
    "no header count": b"",
    "bytes behind the headers": varint(0) + b"surplus",
}

# The length and the key can be read, the value cannot.
BROKEN_VALUE = field(b"\0\0\0" + field(b"key") + varint(100) + b"value" + b"\0")

# Records whose length, offset and key cannot be read, in a batch that claims one record.
BROKEN_RECORDS = {
    "length past the end": varint(100) + body(),
    "negative length": varint(-5) + body(),
    "no fields": varint(0),
    "key past the end": field(b"\0\0\0" + varint(100) + b"key" + field(b"value") + b"\0"),
    "endless number": field(b"\0\0" + b"\x80" * 12 + field(b"key") + field(b"value") + b"\0"),
    "bytes behind the record": record() + b"surplus",
    "nothing": b"",
}

# Offset deltas that differ from the record's position in its batch.
WRONG_OFFSETS = {
    "one too many": (1,),
    "negative": (-1,),
    "far ahead": (2**31 - 1,),
    "twice the same": (0, 0),
    "backwards": (1, 0),
}
