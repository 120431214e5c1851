"""One segment of a log: a file of batches and its indexes."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.config import LogConfig
from millrace.disk import Bytes, Disk, OpenFile
from millrace.storage import index_repair
from millrace.storage.active_file import ActiveFile
from millrace.storage.indexes import OffsetIndex, OffsetPosition, TimeIndex
from millrace.storage.transaction_index import AbortedTransaction, TransactionIndex
from millrace.wire.records import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, read_header

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

MAX_RELATIVE_OFFSET = 2**31 - 1
_WINDOW_BYTES = 8 * 1024
# No file system has larger blocks: a file that takes more than this beyond its size has unused ones.
_LARGEST_BLOCK_BYTES = 64 * 1024


class Segment:
    """Batches from base_offset on; only a log's last segment is appended to."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp",
        "_has_torn_tail",
        "_indexes_checked",
        "_is_writable",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_used",
        "base_offset",
        "created_ms",
        "index_entries",
        "index_interval_bytes",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        disk: Disk,
        index_interval_bytes: int,
        *,
        size: int = 0,
        index_bytes: int = 0,
        time_index_bytes: int = 0,
        transaction_index_bytes: int = 0,
        created_ms: int = 0,
    ) -> None:
        self._directory = directory
        self.base_offset = base_offset
        self._disk = disk
        self.index_interval_bytes = index_interval_bytes
        self.size = size
        self.created_ms = created_ms
        self.offset_index = OffsetIndex(self.path(INDEX_SUFFIX), base_offset, disk, index_bytes)
        self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), base_offset, disk, time_index_bytes)
        # Most segments hold no aborted transaction and have no index of them.
        self.transaction_index: TransactionIndex | None = None
        if transaction_index_bytes:
            self.transaction_index = TransactionIndex(
                self.path(TXN_INDEX_SUFFIX), disk, transaction_index_bytes
            )
        self.index_entries = len(self.offset_index)
        # Properties of an existing file are read when first needed: None until then.
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None if size else -1
        self._max_timestamp_offset = base_offset
        self._bytes_since_index_entry = 0
        self._file: OpenFile | None = None
        self._is_writable = False
        self._used = False
        self._has_torn_tail = False
        self._indexes_checked = not size

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, disk: Disk, config: LogConfig, created_ms: int
    ) -> "Segment":
        """Start an empty segment on disk."""
        segment = cls(directory, base_offset, disk, config.index_interval_bytes, created_ms=created_ms)
        file = segment._open_for_append(create=True)
        if config.preallocate:
            disk.allocate(file.fileno(), config.segment_bytes)
        return segment

    @classmethod
    def listed(cls, directory: Path, base_offset: int, disk: Disk, index_interval_bytes: int) -> "Segment":
        """Take over the files of a complete segment."""
        sizes = [
            (directory / f"{base_offset:020d}{suffix}").stat().st_size
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        ]
        transaction_index = directory / f"{base_offset:020d}{TXN_INDEX_SUFFIX}"
        return cls(
            directory,
            base_offset,
            disk,
            index_interval_bytes,
            size=sizes[0],
            index_bytes=sizes[1],
            time_index_bytes=sizes[2],
            transaction_index_bytes=transaction_index.stat().st_size if transaction_index.exists() else 0,
        )

    def path(self, suffix: str) -> Path:
        """The file of this segment with a suffix."""
        return self._directory / f"{self.base_offset:020d}{suffix}"

    @property
    def log_path(self) -> Path:
        """The file of the batches."""
        return self.path(LOG_SUFFIX)

    @property
    def file(self) -> OpenFile:
        """The open log file; opened when first needed, and then only for reading."""
        self._used = True
        if self._file is None:
            self._file = self._disk.open_for_reading(self.log_path)
        return self._file

    @property
    def active_file(self) -> ActiveFile | None:
        """The log file under its name; None while it is not open."""
        return None if self._file is None else ActiveFile(self.log_path, self._file)

    def _open_for_append(self, *, create: bool = False) -> OpenFile:
        self._file = self._disk.open_for_append(self.log_path, create=create)
        self._is_writable = True
        return self._file

    def release_file(self) -> None:
        """Let go of the log file; slices in flight keep it open until they are sent."""
        self._file = None
        self._is_writable = False

    def release_idle_file(self) -> None:
        """Let go of the log file unless it was used since the last call."""
        if not self._used:
            self.release_file()
            if self.transaction_index is not None:
                self.transaction_index.release()
        self._used = False

    # Appending

    def append(self, buffers: Sequence[Bytes], length: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; after an OSError the segment is as it was before."""
        file = self._file
        if file is None or not self._is_writable:
            file = self._open_for_append()
        if self._has_torn_tail:
            self._cut_torn_tail(file)
        if self._max_timestamp is None:
            # Before the write, because it may fail.
            self._load_max_timestamp()
        try:
            self._disk.write(file.fileno(), buffers)
        except OSError:
            self._has_torn_tail = True
            self._cut_torn_tail(file)
            raise
        self._used = True
        self.account_for(length, last_offset, max_timestamp)

    def _cut_torn_tail(self, file: OpenFile) -> None:
        # Nothing may be appended behind torn bytes.
        self._disk.truncate(file.fileno(), self.size)
        self._has_torn_tail = False

    def account_for(self, length: int, last_offset: int, max_timestamp: int) -> None:
        """Count the batch at the end of the file in size, timestamps and indexes."""
        if self._first_timestamp is None and not self.size:
            self._first_timestamp = max_timestamp
        if self._max_timestamp is None or max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entries(last_offset)
        self.size += length
        self._bytes_since_index_entry += length

    def _add_index_entries(self, last_offset: int) -> None:
        self._bytes_since_index_entry = 0
        self.index_entries += 1
        try:
            self.offset_index.append(last_offset, self.size)
            self.time_index.append_if_later(self.max_timestamp, self._max_timestamp_offset)
        except OSError as failure:
            # The entries stay in memory and are written later.
            logger.warning("%s: cannot write the index: %s", self.path(INDEX_SUFFIX), failure)

    def write_indexes(self) -> None:
        """Bring the index files up to date."""
        self.ensure_indexes()
        self.offset_index.write()
        self.time_index.write()
        if self.transaction_index is not None:
            self.transaction_index.write()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Index a transaction whose abort marker is the segment's last batch."""
        if self.transaction_index is None:
            self.transaction_index = TransactionIndex(self.path(TXN_INDEX_SUFFIX), self._disk)
        self.transaction_index.append(transaction)

    def restore_aborted(self, transactions: Sequence[AbortedTransaction], from_offset: int) -> None:
        """Fill the index of aborted transactions again from an offset on, and write it."""
        for transaction in transactions:
            if transaction.last_offset >= from_offset:
                self.add_aborted(transaction)
        try:
            if self.transaction_index is not None:
                self.transaction_index.write()
        except OSError as failure:
            # The next flush tries again.
            logger.warning("%s: cannot write the index: %s", self.path(TXN_INDEX_SUFFIX), failure)

    def complete_indexes(self) -> None:
        """Let the time index end with the largest timestamp, and write both, as on roll and close."""
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.write_indexes()

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The largest record timestamp, -1 if there is none."""
        if self._max_timestamp is None:
            return self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that holds the largest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    def _load_max_timestamp(self) -> int:
        self.ensure_indexes()
        if self._max_timestamp is not None:
            return self._max_timestamp
        last = self.time_index.last()
        self._max_timestamp, self._max_timestamp_offset = last or (-1, self.base_offset)
        return self._max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, -1 if it has none."""
        if self._first_timestamp is None:
            if not self.size:
                return -1
            self._first_timestamp = next(header.max_timestamp for _, header in self.headers(0))
        return self._first_timestamp

    def aged_since(self) -> int:
        """The time from which the segment's age counts: its first batch's, else its creation."""
        first = self.first_timestamp
        return first if first >= 0 else self.created_ms

    def age_at(self, max_timestamp: int, now_ms: int) -> int:
        """Age of the segment when a batch arrives: by the batches' own time, if they have one."""
        first = self.first_timestamp
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def retention_timestamp(self) -> int:
        """The time retention counts from: the largest timestamp, else the file's own."""
        largest = self.max_timestamp
        if largest >= 0:
            return largest
        return int(self.log_path.stat().st_mtime * 1000)

    # Reading

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch header from a batch's position on, with few reads and without the records."""
        fd = self.file.fileno()
        if end is None:
            end = self.size
        window = b""
        window_start = position
        wanted = _WINDOW_BYTES
        while position + HEADER_BYTES <= end:
            if position + HEADER_BYTES > window_start + len(window):
                window = os.pread(fd, wanted, position)
                window_start = position
                if len(window) < HEADER_BYTES:
                    break
            header = read_header(window, position - window_start)
            size = header.size
            if size < HEADER_BYTES or header.magic != MAGIC or position + size > end:
                break
            yield position, header
            position += size
            # After a large batch, read only the next header.
            wanted = _WINDOW_BYTES if size < _WINDOW_BYTES else HEADER_BYTES
        if position != end:
            raise CorruptBatch(f"{self.log_path}: no whole batch at position {position}")

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """A whole batch."""
        return os.pread(self.file.fileno(), header.size, position)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that holds or follows an offset; None past the segment's last batch."""
        start, found = self._indexed(self.offset_index.floor_offset, offset)
        if found is not None:
            if found.last_offset == offset:
                return start, found
            # The entry is one before the offset: so is all of its batch.
            start += found.size
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                return position, header
        return None

    def read_end_offset(self) -> int:
        """The offset that follows the last batch, read from the file."""
        return self._end_offset_from(self._indexed(self.offset_index.last)[0] if self.size else 0)

    def peek_end_offset(self) -> int:
        """Like read_end_offset(), but writes nothing: a wrong index is passed over, not rebuilt."""
        entry = self.offset_index.last()
        is_right = entry is not None and self.batch_of(entry) is not None
        return self._end_offset_from(entry.position if entry is not None and is_right else 0)

    def _end_offset_from(self, position: int) -> int:
        end_offset = self.base_offset
        for _, header in self.headers(position) if self.size else ():
            end_offset = header.next_offset
        return end_offset

    def cut(self, start: int, limit: int) -> tuple[int, BatchHeader]:
        """The first batch from start on that ends past limit, which must lie before the segment's end."""
        indexed, found = self._indexed(self.offset_index.floor_position, limit)
        if found is not None and indexed >= start and indexed + found.size > limit:
            # The case for batches that are larger than the index interval.
            return indexed, found
        for position, header in self.headers(max(start, indexed)):
            if position + header.size > limit:
                return position, header
        raise CorruptBatch(f"{self.log_path}: no batch ends past position {limit}")

    def _indexed(
        self, lookup: Callable[..., OffsetPosition | None], *sought: int
    ) -> tuple[int, BatchHeader | None]:
        """The batch that an index entry leads to, or the segment's start."""
        if not self._indexes_checked:
            self.ensure_indexes()
        entry = lookup(*sought)
        if entry is None:
            return 0, None
        header = self.batch_of(entry)
        if header is None:
            index_repair.rebuild(self, f"entry {entry.offset} -> {entry.position} leads to no such batch")
            entry = lookup(*sought)
            return (entry.position, self.batch_of(entry)) if entry else (0, None)
        return entry.position, header

    def batch_of(self, entry: OffsetPosition) -> BatchHeader | None:
        """The header of the batch that an index entry was made for; None if the entry is wrong."""
        # No entry is ever made for the first batch, so one to position 0 is a piece of an unused page.
        if not 0 < entry.position <= self.size - HEADER_BYTES:
            return None
        header = read_header(os.pread(self.file.fileno(), HEADER_BYTES, entry.position))
        return header if header.magic == MAGIC and header.last_offset == entry.offset else None

    # The state of the indexes

    def ensure_indexes(self) -> None:
        """Rebuild the indexes if they are missing or wrong; checked once, at first use."""
        if self._indexes_checked:
            return
        # Set first, since the check itself looks batches up.
        self._indexes_checked = True
        fault = index_repair.find_fault(self)
        if fault:
            index_repair.rebuild(self, fault)
        else:
            last = self.offset_index.last()
            self._bytes_since_index_entry = self.size - (last.position if last else 0)

    def forget_contents(self) -> None:
        """Drop what is known of the file's batches, to account for them again."""
        self.size = 0
        self._first_timestamp = None
        self._max_timestamp = -1
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_index_entry = 0
        self.index_entries = 0
        self.offset_index.clear()
        self.time_index.clear()
        self._indexes_checked = True

    def forget_contents_after(self, offset: int) -> None:
        """Drop what is known past the last indexed batch up to an offset, to account for the rest again.

        Everything is dropped if the indexes do not agree with the batches that far.
        """
        entry = self.offset_index.floor_offset(offset)
        if entry is None or self.batch_of(entry) is None:
            self.forget_contents()
            return
        self.offset_index.truncate(entry.offset)
        self.time_index.truncate(entry.offset)
        self._indexes_checked = True
        last = self.time_index.last()
        if last is None or index_repair.has_wrong_last_timestamp(self):
            self.forget_contents()
            return
        self._max_timestamp, self._max_timestamp_offset = last
        self._bytes_since_index_entry = 0
        self.index_entries = len(self.offset_index)
        self.size = entry.position

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that reach to an offset or past it, from the file first and then the indexes.

        After a crash in between, recovery finds indexes that lead past the file's end and rebuilds them.
        """
        found = self.locate(offset)
        if found is not None:
            end, _ = found
            file = self._open_for_append()
            self._disk.truncate(file.fileno(), end)
            self._disk.fsync(file.fileno())
            self.forget_contents_after(offset - 1)
            for _, header in self.headers(self.size, end):
                self.account_for(header.size, header.last_offset, header.max_timestamp)
        if self.transaction_index is not None:
            self.transaction_index.truncate(offset)
        self.write_indexes()

    def release_unused_space(self) -> None:
        """Free the blocks that were allocated for appends which did not happen."""
        with suppress(OSError):
            if self.log_path.stat().st_blocks * 512 > self.size + _LARGEST_BLOCK_BYTES:
                self.truncate_file()

    def truncate_file(self) -> None:
        """Cut the file to the size accounted for."""
        self._disk.truncate(self._open_for_append().fileno(), self.size)
