"""The segments of a log: adding, replacing and dropping them, and their size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage import retention, swap
from millrace.storage.reader import Reader
from millrace.storage.segment import Segment


class SegmentList:
    """The segments of one log, oldest first. The last one is active: appends go to it.

    Owned by the broker loop; not thread-safe. Methods that replace or drop segments return renamed files, to
    be removed after a delay.
    """

    __slots__ = ("_directory", "_disk", "_sealed_bytes", "active", "all", "reader")

    def __init__(self, directory: Path, segments: list[Segment], disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self.all = segments
        self.reader = Reader(segments)
        self._count()

    def _count(self) -> None:
        self.active = self.all[-1]
        self._sealed_bytes = sum(segment.size for segment in self.all[:-1])
        self.reader.forget_positions()

    @property
    def size(self) -> int:
        return self._sealed_bytes + self.active.size

    def has_aborted_transactions(self) -> bool:
        """Whether a segment has a transaction index."""
        return any(segment.transaction_index is not None for segment in self.all)

    def number_of(self, offset: int) -> int:
        """The place of the segment that holds an offset."""
        return self.reader.segment_number(offset)

    def add(self, segment: Segment) -> None:
        """Seal the active segment and put a new one behind it."""
        self._sealed_bytes += self.active.size
        self.all.append(segment)
        self.active = segment
        self.reader.forget_positions()

    def replace(self, replaced: Sequence[int], base_offset: int, config: LogConfig) -> list[Path] | None:
        """Put a staged compacted segment in the place of sealed ones.

        Does nothing and returns None if retention has dropped one of them meanwhile.
        """
        first = self.number_of(replaced[0])
        old = self.all[first : first + len(replaced)]
        if [segment.base_offset for segment in old] != list(replaced):
            return None
        for segment in old:
            segment.release_file()
        retired = swap.put_in_place(self._directory, base_offset, replaced, self._disk)
        new = Segment.listed(self._directory, base_offset, self._disk, config.index_interval_bytes)
        self.all[first : first + len(replaced)] = [new]
        self._count()
        return retired

    def take_oldest(self, count: int) -> list[Segment]:
        """Take segments out of the list; their files stay as they are."""
        taken = self.all[:count]
        del self.all[:count]
        self._count()
        return taken

    # Truncating
    #
    # Each step leaves a directory that opens as a beginning of the log that was there: newer segments go
    # first, and a batch goes before its index entries.

    def truncate_to(self, offset: int) -> list[Path]:
        """Drop the batches that reach to an offset or past it."""
        retired = self._drop_from(self.number_of(offset) + 1)
        self.all[-1].truncate_to(offset)
        self._count()
        return retired

    def restart_at(self, offset: int, config: LogConfig, now_ms: int) -> list[Path]:
        """Drop everything, and begin with an empty segment at an offset."""
        retired = self._drop_from(0)
        self.all.append(Segment.create(self._directory, offset, self._disk, config, now_ms))
        self._count()
        return retired

    def _drop_from(self, number: int) -> list[Path]:
        """Drop the segments from a place in the list on, the newest first."""
        dropped = self.all[number:]
        retired = [path for segment in reversed(dropped) for path in retention.retire(segment, self._disk)]
        if retired:
            self._disk.fsync_directory(self._directory)
        del self.all[number:]
        return retired
