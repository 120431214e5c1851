"""The dirty part of a log, and whether it is large enough to be cleaned now."""

from bisect import bisect_right
from dataclasses import dataclass

from millrace.storage.log import Log
from millrace.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty range of one log: from where the last pass ended to the first offset no pass may touch."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable part of the log that is dirty."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough, or has been dirty for too long."""
        if self.is_overdue:
            return self.dirty_bytes > 0
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def survey(log: Log, first_dirty_offset: int, now_ms: int) -> Cleanable:
    """Look at a log whose offsets below the first dirty one are clean."""
    sealed, active = log.segments[:-1], log.segments[-1]
    starts = [segment.base_offset for segment in log.segments]
    clean = [segment for segment, end in zip(sealed, starts[1:], strict=True) if end <= first_dirty_offset]
    dirty = sealed[len(clean) :]
    if log.config.min_compaction_lag_ms > 0:
        dirty = _old_enough(dirty, now_ms - log.config.min_compaction_lag_ms)
    # An open transaction may still be aborted.
    ends = starts[len(clean) + 1 :]
    dirty = dirty[: bisect_right(ends, log.last_stable_offset, hi=len(dirty))]
    young_or_active = sealed[len(clean) + len(dirty) :] or [active]
    return Cleanable(
        log,
        first_dirty_offset,
        max(first_dirty_offset, young_or_active[0].base_offset),
        clean_bytes=sum(segment.size for segment in clean),
        dirty_bytes=sum(segment.size for segment in dirty),
        is_overdue=any(is_overdue(log, segment, now_ms) for segment in dirty),
    )


def is_overdue(log: Log, segment: Segment, now_ms: int) -> bool:
    """Whether a segment holds records that should have been cleaned by now."""
    latest_ms = now_ms - log.config.max_compaction_lag_ms
    # Usually there is no limit, so no file has to be opened.
    return latest_ms > 0 and segment.size > 0 and segment.aged_since() < latest_ms


def _old_enough(segments: list[Segment], newest_ms: int) -> list[Segment]:
    """The first segments, up to one with a record that is too young."""
    for count, segment in enumerate(segments):
        if segment.max_timestamp > newest_ms:
            return segments[:count]
    return segments
