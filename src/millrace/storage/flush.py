"""Forcing a log to disk without holding up the broker's loop."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millrace.clock import Clock
from millrace.disk import Disk, OpenFile
from millrace.storage.active_file import ActiveFile
from millrace.storage.producer_snapshot import SNAPSHOT_SUFFIX
from millrace.storage.segment import INDEX_SUFFIXES, Segment


class Flush:
    """One flush under way: run() blocks and belongs in a thread, complete() belongs on the loop."""

    __slots__ = (
        "_active",
        "_clock",
        "_directories",
        "_disk",
        "_end",
        "_files",
        "_indexes",
        "end_offset",
        "failure",
        "missing",
        "seconds",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        directories: Sequence[Path],
        files: Sequence[OpenFile],
        indexes: Sequence[Path],
        active: ActiveFile | None,
        end_offset: int,
        end: "Callable[[Flush], None]",
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._active = active
        self._directories = directories
        self._files = files
        self._indexes = indexes
        self._end = end
        self.end_offset = end_offset
        self.seconds = 0.0
        """The time that run() took."""
        self.failure: OSError | None = None
        self.missing: ActiveFile | None = None
        """The active file, if it has lost its name: then being on disk is worth nothing."""

    def run(self) -> None:
        """Wait until everything up to end_offset is on disk; touches nothing that the loop owns."""
        began = self._clock.monotonic()
        for file in self._files:
            self._sync(file)
        for path in self._indexes:
            self._sync_index(path)
        for directory in self._directories:
            self._sync_directory(directory)
        if self._active is not None and not self._active.is_in_place():
            self.missing = self._active
        self.seconds = self._clock.monotonic() - began

    def _sync_index(self, path: Path) -> None:
        try:
            with self._disk.open_for_reading(path) as file:
                self._sync(file)
        except FileNotFoundError:
            # Retention was faster.
            return

    def _sync(self, file: OpenFile) -> None:
        try:
            self._disk.fsync(file.fileno())
        except OSError as failure:
            # Unlike a file that cannot be opened, this is not repaired by trying again.
            self.failure = failure

    def _sync_directory(self, directory: Path) -> None:
        try:
            self._disk.fsync_directory(directory)
        except FileNotFoundError:
            # Deleting the topic was faster.
            return

    def complete(self) -> None:
        """Notify the log, once run() has returned; raises KafkaError if the disk refused something."""
        self._end(self)


def changed_directories(
    directory: Path, segments: Sequence[Segment], recovery_point: int, derived: Sequence[Path]
) -> list[Path]:
    """Directories with new names since the last flush: a segment's, a derived file's, the log's own."""
    if recovery_point <= segments[0].base_offset:
        return [directory, directory.parent]
    return [directory] if derived or recovery_point <= segments[-1].base_offset else []


def derived_files(dirty: Sequence[Segment], recovery_point: int, *, has_producers: bool) -> Iterator[Path]:
    """Files that must be on disk together with the unflushed batches of segments."""
    for segment in dirty[:-1]:
        for suffix in INDEX_SUFFIXES:
            yield segment.path(suffix)
    for segment in dirty:
        # A replay finds no transactions before the recovery point, nor in deleted segments.
        if has_producers and segment.base_offset >= recovery_point:
            yield segment.path(SNAPSHOT_SUFFIX)
        index = segment.transaction_index
        if index is not None and index.last_offset >= recovery_point:
            index.write()
            yield index.path
