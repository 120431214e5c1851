"""The `.cleaned` files of a segment being rewritten: the log and its indexes."""

import os
from contextlib import suppress
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.indexes import OffsetIndex, TimeIndex
from millrace.storage.transaction_index import AbortedTransaction, TransactionIndex
from millrace.wire.records import NO_TIMESTAMP, BatchHeader

CLEANED_SUFFIX = ".cleaned"
_WRITE_BYTES = 1 << 20


class CleanedSegment:
    """A segment in the making, invisible to the log until it is swapped in."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.size = 0
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        disk = Disk()
        self._log_path, index_path, time_index_path, transaction_index_path = (
            directory / f"{base_offset:020d}{kind}{CLEANED_SUFFIX}"
            for kind in (".log", ".index", ".timeindex", ".txnindex")
        )
        self._index = OffsetIndex(index_path, base_offset, disk, 0)
        self._time_index = TimeIndex(time_index_path, base_offset, disk, 0)
        self._transaction_index = TransactionIndex(transaction_index_path, disk)
        self._has_transaction_index = False
        self._log = self._log_path.open("xb", buffering=_WRITE_BYTES)

    @property
    def index_size(self) -> int:
        return self._index.size

    @property
    def time_index_size(self) -> int:
        return self._time_index.size

    def append(self, header: BatchHeader, batch: bytes) -> None:
        """Add a batch, and an index entry where one is due."""
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = header.last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._index.append(header.last_offset, self.size)
            self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
            self._bytes_since_entry = 0
        self._log.write(batch)
        self.size += len(batch)
        self._bytes_since_entry += len(batch)

    def start_transaction_index(self) -> None:
        """One of the sources has such an index: an empty one, at least, must take its place."""
        if not self._has_transaction_index:
            self._has_transaction_index = True
            self._transaction_index.clear()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker was just added."""
        self.start_transaction_index()
        self._transaction_index.append(transaction)

    def seal(self, modified_ns: int) -> None:
        """Make all files durable; they keep the age of the segment they replace."""
        self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
        self._index.write()
        self._time_index.write()
        self._transaction_index.write()
        self._log.close()
        for path in self._paths():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            os.utime(path, ns=(modified_ns, modified_ns))

    def discard(self) -> None:
        """Throw the files away."""
        # Closing writes the buffer; a failure does not matter, since the file is deleted.
        with suppress(OSError):
            self._log.close()
        for path in self._paths():
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        paths = [self._log_path, self._index.path, self._time_index.path]
        return [*paths, self._transaction_index.path] if self._has_transaction_index else paths


def remove_cleaned_files(directory: Path) -> None:
    """Remove the files of an earlier pass that did not finish."""
    for path in directory.glob(f"*{CLEANED_SUFFIX}"):
        path.unlink(missing_ok=True)
