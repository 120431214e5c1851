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
TOPIC_ID_BYTES = 16
ACKS_AND_TIMEOUT_BYTES = 6

_INDEX = Layout(">i")


def place(partitions: Partitions, frame: Buffer) -> int:
    """How far behind the beginning of a page a frame should begin, by its first bytes; most may anywhere.

    Among these are produce requests of old versions, which are not flexible. What is wrong with a frame is
    not said here: it will be when all of it has come and is decoded.
    """
    try:
        header, position = read_request_header(frame)
        version = header.api_version
        if header.api_key != ProduceRequest.api_key or version < ProduceRequest.flexible_from:
            return 0
        # The transactional id, acks and timeout, and how many topics there are.
        length, position = read_uvarint(frame, position)
        _, position = read_uvarint(frame, position + max(length - 1, 0) + ACKS_AND_TIMEOUT_BYTES)
        if version < TOPIC_IDS_FROM:
            length, position = read_uvarint(frame, position)
            end = position + max(length - 1, 0)
            topic = str(frame[position:end], "utf-8")
        else:
            end = position + TOPIC_ID_BYTES
            topic = partitions.topic_name(bytes(frame[position:end]))
        # How many partitions there are, the first one's index, and how many bytes of records it has.
        _, position = read_uvarint(frame, end)
        (index,) = _INDEX.unpack_from(frame, position)
        _, position = read_uvarint(frame, position + _INDEX.size)
        return (partitions.get(topic, index).log.end_position - position) % PAGE_BYTES
    except (LayoutError, IndexError, ValueError, KafkaError):
        return 0
