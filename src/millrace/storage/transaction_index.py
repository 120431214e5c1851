"""The `.txnindex` of a segment: its aborted transactions, in Kafka's file format."""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from millrace.disk import Disk

# version, producer id, first offset, last offset, last stable offset
ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_LAST_OFFSET = struct.Struct(">q")
_LAST_OFFSET_POSITION = 18


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    # The offset of the marker.
    last_offset: int
    # Where the log was stable up to once the marker was there: no earlier transaction ends after it.
    last_stable_offset: int


class TransactionIndex:
    """The transactions whose abort marker lies in a segment, in the order of the markers.

    Entries are collected in memory and written when the segment is flushed or sealed; what a crash loses is
    found again by replaying the log. The file is created with the first entry.
    """

    __slots__ = ("_content", "_disk", "_is_behind", "_stored_bytes", "path")

    def __init__(self, path: Path, disk: Disk, stored_bytes: int = 0) -> None:
        self.path = path
        self._disk = disk
        self._stored_bytes = stored_bytes
        # Whether the file lacks something, or has too much.
        self._is_behind = False
        # Read when first needed.
        self._content: bytearray | None = None if stored_bytes else bytearray()

    def __len__(self) -> int:
        return len(self._entries()) // ENTRY.size

    def _entries(self) -> bytearray:
        if self._content is None:
            with self._disk.open_for_reading(self.path) as file:
                self._content = bytearray(file.readall())
        return self._content

    def fault(self) -> str | None:
        """The fault in the stored entries, if there is one."""
        content = self._entries()
        if len(content) % ENTRY.size:
            return f"{self.path.name} has {len(content)} bytes, which is no number of entries"
        previous = -1
        for version, _, first_offset, last_offset, _ in ENTRY.iter_unpack(content):
            if version != _VERSION or first_offset > last_offset or last_offset <= previous:
                return f"{self.path.name} holds an entry that cannot be"
            previous = last_offset
        return None

    @property
    def last_offset(self) -> int:
        """The offset of the last marker, -1 where there is none."""
        return self._last_offset(len(self) - 1) if self._entries() else -1

    def _last_offset(self, number: int) -> int:
        position = number * ENTRY.size + _LAST_OFFSET_POSITION
        return int(_LAST_OFFSET.unpack_from(self._entries(), position)[0])

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose marker follows all others'."""
        self._entries().extend(ENTRY.pack(_VERSION, *transaction))
        self._is_behind = True

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose markers lie at or past an offset."""
        content = self._entries()
        kept_bytes = self._count_before(offset) * ENTRY.size
        if kept_bytes < len(content):
            del content[kept_bytes:]
            self._stored_bytes = min(self._stored_bytes, kept_bytes)
            self._is_behind = True

    def clear(self) -> None:
        """Forget everything; the next write replaces the file's content."""
        self._content = bytearray()
        self._stored_bytes = 0
        self._is_behind = True

    def write(self) -> None:
        """Bring the file up to date."""
        if self._is_behind:
            content = self._entries()
            self._disk.write_at(self.path, self._stored_bytes, content[self._stored_bytes :])
            self._stored_bytes = len(content)
            self._is_behind = False

    def release(self) -> None:
        """Let go of the entries in memory where the file has them."""
        if self._stored_bytes and not self._is_behind:
            self._content = None

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add the transactions with records in a range; tells whether no later segment can have more."""
        content = self._entries()
        for number in range(self._count_before(start_offset), len(content) // ENTRY.size):
            transaction = AbortedTransaction._make(ENTRY.unpack_from(content, number * ENTRY.size)[1:])
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return True
        return False

    def _count_before(self, offset: int) -> int:
        count = len(self._entries()) // ENTRY.size
        return bisect_left(range(count), offset, key=self._last_offset)


def collect_aborted(
    indexes: Iterable[TransactionIndex | None], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in a range, from the indexes of its segment and all later ones.

    A transaction is listed where its marker lies, which may be long after its records.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        if index is not None and index.collect(start_offset, end_offset, found):
            break
    return found
