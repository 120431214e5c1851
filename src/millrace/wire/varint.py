"""Unsigned varints, and the tagged fields that are counted and measured with them."""

Buffer = bytes | bytearray | memoryview

_MAX_BITS = 35
# Upper bound on the tagged fields of a header, which has none so far.
_MAX_TAGS = 1000


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    # Fast path: the sizes of most records.
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The varint at a position, and the position after it."""
    value = shift = 0
    while shift < _MAX_BITS:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("varint is longer than 5 bytes")


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after a section of tagged fields, none of which is wanted."""
    count, position = read_uvarint(buffer, position)
    if count > _MAX_TAGS:
        raise ValueError(f"{count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise ValueError("tagged field is cut short")
    return position
