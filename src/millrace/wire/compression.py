"""Record-batch compression in the framings that Kafka clients read: gzip, snappy, lz4, zstd."""

import mmap
from contextlib import suppress
from enum import IntEnum
from typing import Any

import cramjam

from millrace.errors import Error, KafkaError

# A small batch can claim to unpack to gigabytes. No client needs more than this, unless the batch is large as
# it is sent.
MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
_LARGEST_RATIO = 16
_USUAL_RATIO = 10
_USUAL_BYTES = 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32 * 1024

DEFAULT_LEVELS = {1: 6, 3: 9, 4: 3}


class Codec(IntEnum):
    """The compression bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_MODULES = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}

CODECS_BY_NAME = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def compress(codec: Codec, payload: bytes, level: int | None = None) -> bytes:
    """Compress the records of a batch; a level of None is Kafka's default."""
    if codec is Codec.NONE:
        return payload
    if codec is Codec.SNAPPY:
        return _compress_snappy(payload)
    compressor = _compressor(codec, level)
    compressor.compress(payload)
    return bytes(compressor.finish())


def compress_up_to(codec: Codec, payload: bytes, level: int | None, most_bytes: int) -> bytes | None:
    """Compress the records of a batch, and give up as soon as they are too large."""
    if codec in (Codec.NONE, Codec.SNAPPY) or len(payload) <= _USUAL_BYTES:
        packed = compress(codec, payload, level)
        return packed if len(packed) <= most_bytes else None
    compressor = _compressor(codec, level)
    parts = []
    size = 0
    for start in range(0, len(payload), _USUAL_BYTES):
        compressor.compress(payload[start : start + _USUAL_BYTES])
        parts.append(bytes(compressor.flush()))
        size += len(parts[-1])
        if size > most_bytes:
            return None
    parts.append(bytes(compressor.finish()))
    return b"".join(parts) if size + len(parts[-1]) <= most_bytes else None


def _compressor(codec: Codec, level: int | None) -> Any:
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec is Codec.GZIP:
        # Kafka writes gzip's own default as -1.
        return cramjam.gzip.Compressor(level=6 if level < 0 else level)
    if codec is Codec.ZSTD:
        return cramjam.zstd.Compressor(level=level)
    # Kafka's Java reader accepts independent blocks only.
    return cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)


def decompress(codec: Codec, payload: bytes) -> bytes:
    """Unpack the records of a batch, refusing what is corrupt or absurdly large."""
    if codec is Codec.NONE:
        return payload
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(payload, _room_for(payload))
        return _decompress_bounded(codec, payload)
    except cramjam.DecompressionError as failure:
        raise KafkaError(
            Error.CORRUPT_MESSAGE, f"Cannot decompress {codec.name.lower()} batch: {failure}"
        ) from None


def decompress_up_to(codec: Codec, payload: bytes, most_bytes: int) -> bytes | None:
    """Unpack the records of a batch unless they are larger than this; None for them and for corrupt ones."""
    if codec is Codec.SNAPPY:
        with suppress(cramjam.DecompressionError, KafkaError):
            return _decompress_snappy(payload, most_bytes)
        return None
    usual_bytes = min(_USUAL_RATIO * len(payload), most_bytes)
    unpacked = _decompress_into(codec, payload, usual_bytes)
    if unpacked is None and usual_bytes < most_bytes:
        unpacked = _decompress_into(codec, payload, most_bytes)
    return unpacked


def _decompress_into(codec: Codec, payload: bytes, size: int) -> bytes | None:
    room = bytearray(size)
    with suppress(cramjam.DecompressionError):
        return bytes(memoryview(room)[: _MODULES[codec].decompress_into(payload, room)])
    return None


def _decompress_bounded(codec: Codec, payload: bytes) -> bytes:
    # Nearly every batch fits here; mapping and unmapping the full bound takes longer than unpacking.
    unpacked = _decompress_into(codec, payload, min(_USUAL_RATIO * len(payload), _USUAL_BYTES))
    if unpacked is not None:
        return unpacked
    with mmap.mmap(-1, _room_for(payload)) as room, memoryview(room) as view:
        length = _MODULES[codec].decompress_into(payload, view)
        return bytes(view[:length])


def _room_for(payload: bytes) -> int:
    """The most bytes that a batch may unpack to."""
    return max(MAX_DECOMPRESSED_BYTES, _LARGEST_RATIO * len(payload))


def _compress_snappy(payload: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(payload: bytes, room: int) -> bytes:
    if not payload.startswith(_XERIAL_MAGIC):
        # librdkafka and others send one raw block.
        return _decompress_snappy_block(payload, room)
    parts = []
    position = len(_XERIAL_HEADER)
    while position < len(payload):
        length = int.from_bytes(payload[position : position + 4], "big")
        position += 4
        part = _decompress_snappy_block(payload[position : position + length], room)
        room -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: bytes, room: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise KafkaError(Error.CORRUPT_MESSAGE, "Snappy batch unpacks to more than the broker accepts")
    return bytes(cramjam.snappy.decompress_raw(block))
