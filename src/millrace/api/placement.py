"""Where a large produce request best lies in memory while it is received.

A processor copies fastest between places that are alike within their pages, and slowest from one that is a
few bytes short of it (`python -m benchmarks.copying` shows how much that is). So records are received at the
place within a page that they will have in their segment.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError

from millrace.api.produce import TOPIC_IDS_FROM
from millrace.errors import KafkaError
from millrace.replication.partitions import Partitions
from millrace.wire.frames import read_request_header
from millrace.wire.messages.produce import ProduceRequest
from millrace.wire.varint import Buffer, read_uvarint

PAGE_BYTES = 4096
FLEXIBLE_FROM = ProduceRequest.flexible_from
TOPIC_ID_BYTES = 16

_LENGTH = Layout(">h")
_COUNT = Layout(">i")
_ACKS_AND_TIMEOUT = Layout(">hi")


def place(partitions: Partitions, frame: Buffer) -> int:
    """How far behind the beginning of a page a frame should begin, by its first bytes; most may anywhere.

    What is wrong with a frame is not said here: it will be when all of it has come and is decoded.
    """
    try:
        header, position = read_request_header(frame)
        if header.api_key != ProduceRequest.api_key:
            return 0
        topic, index, position = _first_records(partitions, frame, position, header.api_version)
        return (partitions.get(topic, index).log.end_position - position) % PAGE_BYTES
    except (LayoutError, IndexError, ValueError, KafkaError):
        return 0


def _first_records(
    partitions: Partitions, frame: Buffer, position: int, version: int
) -> tuple[str, int, int]:
    """The partition that a produce request names first, and where its records begin."""
    is_flexible = version >= FLEXIBLE_FROM
    _, position = _string(frame, position, is_flexible)
    position = _skip_count(frame, position + _ACKS_AND_TIMEOUT.size, is_flexible)
    if version < TOPIC_IDS_FROM:
        name, position = _string(frame, position, is_flexible)
        topic = str(name, "utf-8")
    else:
        topic = partitions.topic_name(bytes(frame[position : position + TOPIC_ID_BYTES]))
        position += TOPIC_ID_BYTES
    position = _skip_count(frame, position, is_flexible)
    (index,) = _COUNT.unpack_from(frame, position)
    return topic, index, _skip_count(frame, position + _COUNT.size, is_flexible)


def _string(frame: Buffer, position: int, is_flexible: bool) -> tuple[Buffer, int]:
    """A string that may be none, and the position after it."""
    if is_flexible:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = _LENGTH.unpack_from(frame, position)
        position += _LENGTH.size
    end = position + max(length, 0)
    return frame[position:end], end


def _skip_count(frame: Buffer, position: int, is_flexible: bool) -> int:
    """The position after the length of an array or of bytes."""
    return read_uvarint(frame, position)[1] if is_flexible else position + _COUNT.size
