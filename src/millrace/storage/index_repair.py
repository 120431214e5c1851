"""The repair of a segment's indexes: they are checked when first used, and rebuilt from the batches if wrong.

A crash or a copied directory may leave them missing, short or foreign. They hold nothing that the segment
does not hold.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millrace.wire.records import CorruptBatch

if TYPE_CHECKING:
    from millrace.storage.segment import Segment

logger = logging.getLogger(__name__)


def find_fault(segment: Segment) -> str | None:
    """The first sign that an index is not this segment's."""
    for index in (segment.offset_index, segment.time_index):
        try:
            size = index.path.stat().st_size
        except FileNotFoundError:
            return f"{index.path.name} is missing"
        if size != index.size:
            return f"{index.path.name} has {size} bytes, which is no number of entries"
    last = segment.offset_index.last()
    if _lacks_entries(segment) if last is None else segment.batch_of(last) is None:
        return f"{segment.offset_index.path.name} does not end with a batch of this segment"
    if has_wrong_last_timestamp(segment):
        return f"{segment.time_index.path.name} does not end with a timestamp of this segment"
    return None


def _lacks_entries(segment: Segment) -> bool:
    """Whether an empty offset index is wrong, because there are batches past the first interval."""
    return any(position > segment.index_interval_bytes for position, _ in segment.headers(0))


def has_wrong_last_timestamp(segment: Segment) -> bool:
    """Whether the time index ends with a timestamp that its batch does not have."""
    last = segment.time_index.last()
    if last is None:
        # Right only if the records have no timestamps at all.
        return segment.first_timestamp >= 0
    holder = segment.locate(last.offset) if last.offset >= segment.base_offset else None
    return holder is None or holder[1].max_timestamp != last.timestamp


def rebuild(segment: Segment, fault: str) -> None:
    """Make both indexes from the segment's batches, and write them."""
    logger.warning("%s: %s; rebuilding the indexes", segment.log_path, fault)
    end = segment.size
    segment.forget_contents()
    try:
        for _, header in segment.headers(0, end):
            segment.account_for(header.size, header.last_offset, header.max_timestamp)
    except CorruptBatch as corruption:
        logger.error("%s; the rest of this segment cannot be read", corruption.message)
        segment.size = end
    try:
        segment.complete_indexes()
    except OSError as failure:
        logger.warning("%s: cannot write the rebuilt indexes: %s", segment.log_path, failure)
