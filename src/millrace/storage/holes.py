"""Offsets that a log has lost, because something else than the broker deleted its segments.

A log rolls at its end and retention takes from its start, so that each segment begins where the one before
it ends. Compaction leaves gaps as well: those between the segments of a compacted log prove nothing.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from millrace.disk import Disk
from millrace.storage.cleaner_checkpoint import read_clean_offsets
from millrace.storage.leader_epochs import LeaderEpochs
from millrace.storage.log_dir import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, partitions_in
from millrace.storage.offset_checkpoint import read_offsets
from millrace.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from millrace.wire.records import CorruptBatch

logger = logging.getLogger(__name__)


class Hole(NamedTuple):
    """Missing offsets, from start up to but not including end."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} are missing"


def before_the_start(first_base_offset: int, epochs: LeaderEpochs, log_start_offset: int) -> Hole | None:
    """The hole before the first segment: retention lets the first epoch begin where the log does."""
    oldest = epochs.entries[0].start_offset if epochs.entries else first_base_offset
    return _hole(max(oldest, log_start_offset), first_base_offset)


def after_the_end(end_offset: int, recovery_point: int, log_start_offset: int) -> Hole | None:
    """The hole after the last segment: what is below the recovery point was on disk."""
    return _hole(max(end_offset, log_start_offset), recovery_point)


def between_segments(directory: Path, log_start_offset: int = 0) -> Iterator[Hole]:
    """The holes between the segments of a log that was never compacted.

    Reads files and changes nothing; slow, for a thread.
    """
    for base_offset, following in pairwise(_bases(directory)):
        end_offset = _end_offset(directory, base_offset)
        hole = None if end_offset is None else _hole(max(end_offset, log_start_offset), following)
        if hole is not None:
            yield hole


def in_data_dir(data_dir: Path, is_compacted: Callable[[str], bool]) -> Iterator[tuple[str, Hole]]:
    """Every hole in a data directory, with its partition, whether or not a broker is at work there."""
    recovery_points = read_offsets(data_dir / RECOVERY_POINT_FILE)
    log_start_offsets = read_offsets(data_dir / LOG_START_OFFSET_FILE)
    cleaned = read_clean_offsets(data_dir)
    for topic, index in partitions_in(data_dir):
        log_start_offset = log_start_offsets.get((topic, index), 0)
        directory = data_dir / f"{topic}-{index}"
        bases = _bases(directory)
        # Retention moves the first epoch before it removes files: read in this order, they cannot disagree.
        epochs = LeaderEpochs.load(directory, Disk())
        end_offset = _end_offset(directory, bases[-1]) if bases else 0
        holes = [
            before_the_start(bases[0], epochs, log_start_offset) if bases else None,
            *(
                ()
                if (topic, index) in cleaned or is_compacted(topic)
                else between_segments(directory, log_start_offset)
            ),
            None
            if end_offset is None
            else after_the_end(end_offset, recovery_points.get((topic, index), 0), log_start_offset),
        ]
        for hole in holes:
            if hole is not None:
                yield f"{topic}-{index}", hole


def report(directory: Path, hole: Hole, consequence: str) -> None:
    """Say what is lost, and what can be done about it."""
    logger.error(
        "%s: %s: the segments that held them were deleted or damaged, and not by the broker. If there is a"
        " copy of the files, stop the broker and put them back; %s",
        directory,
        hole,
        consequence,
    )


def _bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob(f"*{LOG_SUFFIX}") if path.stem.isdigit())


def _hole(start: int, end: int) -> Hole | None:
    return Hole(start, end) if start < end else None


def _end_offset(directory: Path, base_offset: int) -> int | None:
    """The offset that follows a segment's last batch; None if it was removed meanwhile or is damaged."""
    path = directory / f"{base_offset:020d}{LOG_SUFFIX}"
    index_path = path.with_suffix(INDEX_SUFFIX)
    try:
        segment = Segment(
            directory,
            base_offset,
            Disk(),
            index_interval_bytes=0,
            size=path.stat().st_size,
            index_bytes=index_path.stat().st_size if index_path.exists() else 0,
        )
        return segment.peek_end_offset()
    except (OSError, CorruptBatch):
        return None
