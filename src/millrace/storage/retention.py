"""Segments that a log drops: which of them have expired, and the first step of their removal."""

from collections.abc import Sequence
from pathlib import Path

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage import swap
from millrace.storage.producer_snapshot import SNAPSHOT_SUFFIX
from millrace.storage.segment import INDEX_SUFFIXES, LOG_SUFFIX, TXN_INDEX_SUFFIX, Segment

_RETIRED = (*INDEX_SUFFIXES, LOG_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


def count_expired(segments: Sequence[Segment], config: LogConfig, log_start_offset: int, now_ms: int) -> int:
    """Number of a log's oldest segments that are past their retention."""
    expired = _before_start(segments, log_start_offset)
    if "delete" in config.cleanup_policy:
        expired = max(expired, _too_old(segments, config.retention_ms, now_ms))
        expired = max(expired, _too_much(segments, config.retention_bytes))
    return expired


def _before_start(segments: Sequence[Segment], log_start_offset: int) -> int:
    """Segments that DeleteRecords has left behind; the active one stays."""
    return sum(1 for following in segments[1:] if following.base_offset <= log_start_offset)


def _too_old(segments: Sequence[Segment], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    for count, segment in enumerate(segments):
        is_empty_active = segment is segments[-1] and not segment.size
        if is_empty_active or now_ms - segment.retention_timestamp() <= retention_ms:
            return count
    return len(segments)


def _too_much(segments: Sequence[Segment], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    for count, segment in enumerate(segments):
        is_empty_active = segment is segments[-1] and not segment.size
        if is_empty_active or excess < segment.size:
            return count
        excess -= segment.size
    return len(segments)


def retire(segment: Segment, disk: Disk) -> list[Path]:
    """Rename a segment's files out of the way; the next start removes those that are left.

    After a crash, recovery rebuilds the indexes of a log that is still there, but not its transaction index.
    """
    segment.release_file()
    retired = []
    for suffix in _RETIRED:
        path = segment.path(suffix)
        if path.exists():
            target = path.with_name(path.name + swap.DELETED_SUFFIX)
            disk.rename(path, target)
            retired.append(target)
    return retired
