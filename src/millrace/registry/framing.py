"""Records as the serializers of Confluent frame them: a zero byte, the id of the schema, and the data.

Protobuf data is preceded by the path to the message type inside of the schema.
"""

from __future__ import annotations

from struct import Struct

MAGIC = 0
_HEADER = Struct(">BI")


class NotFramed(ValueError):
    """Bytes that no such serializer wrote."""


def frame(schema_id: int, data: bytes) -> bytes:
    return _HEADER.pack(MAGIC, schema_id) + data


def unframe(record: bytes) -> tuple[int, bytes]:
    """The id of the schema, and the data. Raises NotFramed."""
    if len(record) < _HEADER.size or record[0] != MAGIC:
        raise NotFramed("the record does not begin with a zero byte and the id of a schema")
    return _HEADER.unpack_from(record)[1], record[_HEADER.size :]


def pack_indexes(indexes: list[int]) -> bytes:
    """The path to a message type; the first type of a schema is a single zero."""
    if indexes == [0]:
        return b"\0"
    return b"".join(map(_zigzag, [len(indexes), *indexes]))


def unpack_indexes(data: bytes) -> tuple[list[int], bytes]:
    """The path to a message type, and the rest. Raises NotFramed."""
    count, position = _read_zigzag(data, 0)
    if count == 0:
        return [0], data[position:]
    if not 0 < count <= 100:
        raise NotFramed(f"the record names a message type at depth {count}")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        indexes.append(index)
    return indexes, data[position:]


def _zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise NotFramed("the record ends inside of the path to its message type")
