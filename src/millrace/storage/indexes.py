"""The sparse offset and time indexes of a segment, in Kafka's file format.

Entries are collected in memory and written in blocks, so an append costs no system call and no index keeps a
file open. What a crash loses is rebuilt from the segment, which recovery has to scan anyway.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from millrace.disk import Disk

_MAX_BUFFERED_BYTES = 64 * 1024
# Entries that a search reads at once and remembers: a sequential reader finds the next ones there.
_WINDOW_ENTRIES = 512

Entry: TypeAlias = tuple[int, int]
Columns: TypeAlias = "tuple[Sequence[int], Sequence[int]]"
"""Entries column by column, so a search needs no Python call for each step."""


class Index:
    """Fixed-size entries that ascend in both columns: a part in the file, the newest in memory."""

    __slots__ = (
        "_buffered",
        "_disk",
        "_probed",
        "_stored",
        "_window",
        "_window_start",
        "base_offset",
        "path",
    )

    ENTRY: ClassVar[struct.Struct]
    TYPES: ClassVar[tuple[str, str]]

    def __init__(self, path: Path, base_offset: int, disk: Disk, stored_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self._stored = stored_bytes // self.ENTRY.size
        self._buffered = self._no_entries()
        self._window: Columns | None = None
        self._window_start = 0
        # Entries that searches of the file begin with, one for a window at most.
        self._probed: dict[int, Entry] = {}

    def __len__(self) -> int:
        return self._stored + len(self._buffered[0])

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return len(self) * self.ENTRY.size

    def clear(self) -> None:
        """Forget every entry; the next write replaces the file's content."""
        self._keep(0)

    def write(self) -> None:
        """Bring the file up to date, at its exact size."""
        content = b"".join(map(self.ENTRY.pack, *self._buffered))
        self._disk.write_at(self.path, self._stored * self.ENTRY.size, content)
        self._stored = len(self)
        self._buffered = self._no_entries()
        # Searches of a longer file start with other entries.
        self._probed.clear()

    def _append(self, first: int, second: int) -> None:
        firsts, seconds = self._buffered
        firsts.append(first)
        seconds.append(second)
        if len(firsts) * self.ENTRY.size >= _MAX_BUFFERED_BYTES:
            self.write()

    def _entry(self, number: int) -> Entry:
        if number >= self._stored:
            return _row(self._buffered, number - self._stored)
        if self._window is not None and 0 <= number - self._window_start < len(self._window[0]):
            return _row(self._window, number - self._window_start)
        entry = self._stored_entry(number)
        if entry is None:
            raise OSError(f"{self.path} has become shorter")
        return entry

    def _count_up_to(self, column: int, value: int) -> int:
        """Number of entries that have at most value in a column."""
        buffered = self._buffered[column]
        if buffered and buffered[0] <= value:
            return self._stored + bisect_right(buffered, value)
        if not self._stored:
            return 0
        window = self._window
        if window is None or not self._decides(window[column], value):
            window = self._move_window(column, value)
        return self._window_start + bisect_right(window[column], value)

    def _decides(self, window: Sequence[int], value: int) -> bool:
        """Whether the first entry past value is in the window."""
        return bool(window) and (self._window_start == 0 or window[0] <= value) and window[-1] > value

    def _move_window(self, column: int, value: int) -> Columns:
        """Read the entries around the first one past value, found with few single reads."""
        low, high = 0, self._stored
        while high - low > _WINDOW_ENTRIES:
            middle = (low + high) // 2
            entry = self._probe(middle)
            if entry is not None and entry[column] <= value:
                low = middle
            else:
                high = middle
        # One more than the search needs, to see that the next one is past value.
        high = min(high + 1, self._stored)
        size = self.ENTRY.size
        content = self._disk.read_at(self.path, low * size, (high - low) * size)
        # A damaged file may end within an entry.
        self._window = self._columns(content[: len(content) // size * size])
        self._window_start = low
        return self._window

    def _probe(self, number: int) -> Entry | None:
        """One entry of the file, remembered: searches begin with the same few."""
        entry = self._probed.get(number)
        if entry is None:
            entry = self._stored_entry(number)
            if entry is not None:
                self._probed[number] = entry
        return entry

    def _no_entries(self) -> "tuple[array[int], array[int]]":
        first, second = self.TYPES
        return array(first), array(second)

    def _columns(self, content: bytes) -> Columns:
        """The entries of a piece of the file."""
        first, second = zip(*self.ENTRY.iter_unpack(content), strict=True) if content else ((), ())
        return first, second

    def _floor(self, column: int, value: int) -> Entry | None:
        """The last entry that has at most value in a column."""
        columns: Columns = self._buffered
        if not columns[column] or columns[column][0] > value:
            window = self._window
            if window is None or not self._decides(window[column], value):
                count = self._count_up_to(column, value)
                return self._entry(count - 1) if count else None
            columns = window
        number = bisect_right(columns[column], value) - 1
        return (columns[0][number], columns[1][number]) if number >= 0 else None

    def _keep(self, count: int) -> None:
        """Drop all entries but the first ones."""
        if count >= self._stored:
            for column in self._buffered:
                del column[count - self._stored :]
        else:
            self._stored = count
            self._buffered = self._no_entries()
            self._window = None
            self._probed.clear()

    def _stored_entry(self, number: int) -> Entry | None:
        """One entry of the file; None if the file has become shorter."""
        content = self._disk.read_at(self.path, number * self.ENTRY.size, self.ENTRY.size)
        if len(content) < self.ENTRY.size:
            return None
        first, second = self.ENTRY.unpack(content)
        return first, second


def _row(columns: Columns, number: int) -> Entry:
    return columns[0][number], columns[1][number]


class OffsetPosition(NamedTuple):
    """The last offset of a batch, and where the batch starts in the segment."""

    offset: int
    position: int


class OffsetIndex(Index):
    """Offset to file position; one entry for every few kilobytes of batches."""

    __slots__ = ()

    ENTRY = struct.Struct(">ii")
    TYPES = ("i", "i")

    def append(self, offset: int, position: int) -> None:
        """Add an entry past the last one."""
        self._append(offset - self.base_offset, position)

    def last(self) -> OffsetPosition | None:
        """The newest entry."""
        return self._absolute(self._entry(len(self) - 1)) if len(self) else None

    def from_end(self, count: int) -> OffsetPosition | None:
        """The entry that many places before the end, or the first."""
        return self._absolute(self._entry(max(len(self) - count, 0))) if len(self) else None

    def truncate(self, offset: int) -> None:
        """Drop the entries past an offset."""
        self._keep(self._count_up_to(0, offset - self.base_offset))

    def floor_offset(self, offset: int) -> OffsetPosition | None:
        """The last entry at or before an offset."""
        return self._absolute(self._floor(0, offset - self.base_offset))

    def floor_position(self, position: int) -> OffsetPosition | None:
        """The last entry at or before a file position."""
        return self._absolute(self._floor(1, position))

    def _columns(self, content: bytes) -> Columns:
        # Both columns have one type, so C code does all of it; readers of small batches need this often.
        words = array("i", content)
        if sys.byteorder == "little":
            words.byteswap()
        view = memoryview(words)
        return view[::2], view[1::2]

    def _absolute(self, entry: Entry | None) -> OffsetPosition | None:
        if entry is None:
            return None
        # Bypasses NamedTuple's __new__, a Python function: 0.23 instead of 0.33 us, several times per fetch.
        return tuple.__new__(OffsetPosition, (self.base_offset + entry[0], entry[1]))


class TimestampEntry(NamedTuple):
    """The largest timestamp so far, and the last offset of the batch that holds it."""

    timestamp: int
    offset: int


class TimeIndex(Index):
    """Timestamp to offset; timestamps ascend even where the records' do not."""

    __slots__ = ("_last_timestamp",)

    ENTRY = struct.Struct(">qi")
    TYPES = ("q", "i")

    def __init__(self, path: Path, base_offset: int, disk: Disk, stored_bytes: int) -> None:
        super().__init__(path, base_offset, disk, stored_bytes)
        self._last_timestamp: int | None = None if self._stored else -1

    def clear(self) -> None:
        """Forget every entry; the next write replaces the file's content."""
        super().clear()
        self._last_timestamp = -1

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one is already as late."""
        if self._last_timestamp is None:
            last = self.last()
            self._last_timestamp = -1 if last is None else last.timestamp
        if timestamp > self._last_timestamp:
            self._append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def truncate(self, offset: int) -> None:
        """Drop the entries past an offset."""
        self._keep(self._count_up_to(1, offset - self.base_offset))
        self._last_timestamp = None if len(self) else -1

    def last(self) -> TimestampEntry | None:
        """The newest entry."""
        return self._absolute(self._entry(len(self) - 1)) if len(self) else None

    def floor_timestamp(self, timestamp: int) -> TimestampEntry | None:
        """The last entry at or before a timestamp."""
        return self._absolute(self._floor(0, timestamp))

    def _absolute(self, entry: Entry | None) -> TimestampEntry | None:
        return None if entry is None else TimestampEntry(entry[0], self.base_offset + entry[1])
