"""The data types of MQTT: integers, variable byte integers, strings and binary data."""

from __future__ import annotations

from millrace.mqtt.packets.reasons import PacketError

MAX_VARINT = 268_435_455
"""The largest variable byte integer: four bytes of seven bits."""


class Reader:
    """Reads the data types one after the other from the body of a packet."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def byte(self) -> int:
        position = self._advance(1)
        return self.data[position]

    def two_bytes(self) -> int:
        position = self._advance(2)
        return int.from_bytes(self.data[position : position + 2], "big")

    def four_bytes(self) -> int:
        position = self._advance(4)
        return int.from_bytes(self.data[position : position + 4], "big")

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise PacketError("a variable byte integer is longer than it needs to be")
                return value
        raise PacketError("a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        length = self.two_bytes()
        position = self._advance(length)
        return self.data[position : position + length]

    def string(self) -> str:
        return text(self.binary())

    def rest(self) -> bytes:
        position = self._advance(self.end - self.position)
        return self.data[position : self.end]

    def part(self, length: int) -> Reader:
        """A reader of the next bytes alone."""
        position = self._advance(length)
        return Reader(self.data[position : position + length])

    @property
    def is_done(self) -> bool:
        return self.position == self.end

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.position != self.end:
            raise PacketError(f"{self.end - self.position} bytes follow the end of the packet's content")

    def _advance(self, length: int) -> int:
        position = self.position
        if position + length > self.end:
            raise PacketError("the packet ends in the middle of a field")
        self.position = position + length
        return position


def text(data: bytes) -> str:
    """Decode a string. Raises PacketError for what UTF-8 or MQTT do not allow."""
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        raise PacketError("a string is not valid UTF-8") from error
    if "\0" in decoded:
        raise PacketError("a string contains the null character")
    return decoded


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARINT:
        raise PacketError(f"{value} does not fit a variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def two_bytes(value: int) -> bytes:
    return value.to_bytes(2, "big")


def binary(data: bytes) -> bytes:
    if len(data) > 0xFFFF:
        raise PacketError(f"a field of {len(data)} bytes is longer than 65,535 bytes")
    return len(data).to_bytes(2, "big") + data


def string(value: str) -> bytes:
    return binary(value.encode())
