"""CRC-32C, by the values that RFC 3720 gives (appendix B.4)."""

import pytest

from millrace.wire.checksum import crc32c


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_known_values(content: bytes, expected: int) -> None:
    assert crc32c(content) == expected


@pytest.mark.parametrize("size", [1, 15, 64, 255, 4096, 16_383, 16_384, 1_000_003])
def test_pieces_of_any_size_and_place_agree_with_the_definition(size: int) -> None:
    """Long pieces take other ways through the library than short ones."""
    content = bytes(number * 167 % 251 for number in range(size + 3))
    for start in (0, 1, 3):
        piece = memoryview(content)[start : start + size]
        assert crc32c(piece) == crc32c(bytearray(piece)) == defined(bytes(piece))


def defined(content: bytes) -> int:
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder = remainder >> 8 ^ TABLE[(remainder ^ byte) & 0xFF]
    return remainder ^ 0xFFFFFFFF


def _remainder(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = [_remainder(value) for value in range(256)]
