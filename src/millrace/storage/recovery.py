"""Opening a log's directory: listing its segments, and repairing them after an unclean stop."""

import logging
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage import holes, swap
from millrace.storage.cleaned_segment import CLEANED_SUFFIX
from millrace.storage.leader_epochs import LeaderEpochs
from millrace.storage.producer_recovery import ProducerRecovery
from millrace.storage.producer_snapshot import SNAPSHOT_SUFFIX, snapshot_path
from millrace.storage.producer_state import ProducerStates
from millrace.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
)
from millrace.wire.checksum import crc32c
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    CorruptBatch,
    read_header,
)

logger = logging.getLogger(__name__)

_LEFTOVER_SUFFIXES = (CLEANED_SUFFIX, swap.SWAP_SUFFIX, swap.DELETED_SUFFIX)
_TEMPORARY_SUFFIX = ".tmp"


class RecoveryInterrupted(Exception):
    """The broker stops before a log is recovered; the next start begins again."""


class LoadedLog(NamedTuple):
    """The contents of a log's directory."""

    segments: list[Segment]
    log_end_offset: int
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    # The newest snapshot of the producers, -1 where there is none.
    snapshot_offset: int


class Loader:
    """Loads one log's directory."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        disk: Disk,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`interrupted` is asked before each segment is recovered."""
        self._interrupted = interrupted
        self._directory = directory
        self._config = config
        self._clock = clock
        self._disk = disk
        self._segments: list[Segment] = []
        self._snapshot_offsets: list[int] = []
        # Segments of which only an index is left that has entries, so that there were records.
        self._orphans: set[int] = set()
        self._leader_epochs = LeaderEpochs(directory, disk, [])

    def load(
        self,
        recovery_point: int,
        log_start_offset: int,
        *,
        clean: bool,
        high_watermark: int | None = None,
    ) -> LoadedLog:
        """List the segments, recover them unless the stop was clean, restore the producers."""
        if self._directory.is_dir():
            self._list_files()
            self._leader_epochs = LeaderEpochs.load(self._directory, self._disk)
        else:
            self._directory.mkdir(parents=True)
        if not self._segments:
            self._segments.append(self._new_segment(log_start_offset))
        first_base_offset = self._segments[0].base_offset
        hole = holes.before_the_start(first_base_offset, self._leader_epochs, log_start_offset)
        if hole is not None:
            holes.report(self._directory, hole, f"the log now starts at offset {first_base_offset}")
        end_offset = self._end_offset_if_intact() if clean else None
        first_marker = None
        if end_offset is None:
            end_offset, first_marker = self._recover(recovery_point)
        known_end = max([recovery_point, *(base_offset + 1 for base_offset in self._orphans)])
        hole = holes.after_the_end(end_offset, known_end, log_start_offset)
        if hole is not None:
            holes.report(self._directory, hole, "else new records are given these offsets again")
        if end_offset < log_start_offset:
            end_offset = self._start_over(log_start_offset)
        indexed_up_to = self._check_transaction_indexes(end_offset if first_marker is None else first_marker)
        recovery = ProducerRecovery(self._directory, self._segments, self._clock, self._disk)
        producers = recovery.restore(self._snapshot_offsets, end_offset, indexed_up_to, high_watermark)
        newest_snapshot = self._remove_stray_snapshots(end_offset)
        self._leader_epochs.truncate_from_end(end_offset)
        return LoadedLog(self._segments, end_offset, producers, self._leader_epochs, newest_snapshot)

    # Files

    def _list_files(self) -> None:
        sizes = _file_sizes(self._directory)
        if any(name.endswith(_LEFTOVER_SUFFIXES) for name in sizes):
            swap.recover(self._directory, self._disk)
            sizes = _file_sizes(self._directory)
        for name in sizes:
            stem, dot, suffix = name.partition(".")
            if name.endswith(_TEMPORARY_SUFFIX):
                self._disk.remove(self._directory / name)
            elif not stem.isdigit():
                continue
            elif dot + suffix == LOG_SUFFIX:
                self._segments.append(self._listed_segment(stem, sizes))
            elif dot + suffix == SNAPSHOT_SUFFIX:
                self._snapshot_offsets.append(int(stem))
            elif dot + suffix in SEGMENT_SUFFIXES and stem + LOG_SUFFIX not in sizes:
                logger.warning("%s: removing the index of a segment that is gone", self._directory / name)
                if sizes[name]:
                    self._orphans.add(int(stem))
                self._disk.remove(self._directory / name)
        self._segments.sort(key=lambda segment: segment.base_offset)
        self._snapshot_offsets.sort()

    def _listed_segment(self, stem: str, sizes: dict[str, int]) -> Segment:
        return Segment(
            self._directory,
            int(stem),
            self._disk,
            self._config.index_interval_bytes,
            size=sizes[stem + LOG_SUFFIX],
            index_bytes=sizes.get(stem + INDEX_SUFFIX, 0),
            time_index_bytes=sizes.get(stem + TIME_INDEX_SUFFIX, 0),
            transaction_index_bytes=sizes.get(stem + TXN_INDEX_SUFFIX, 0),
            created_ms=self._clock.now_ms(),
        )

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._directory, base_offset, self._disk, self._config, self._clock.now_ms())

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.release_file()
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                self._disk.remove(segment.path(suffix))

    def _start_over(self, log_start_offset: int) -> int:
        logger.warning(
            "%s: ends before its start offset %d; starting over", self._directory, log_start_offset
        )
        self._remove_segments(self._segments)
        self._segments = [self._new_segment(log_start_offset)]
        return log_start_offset

    # A clean stop

    def _end_offset_if_intact(self) -> int | None:
        try:
            return self._segments[-1].read_end_offset()
        except CorruptBatch as fault:
            logger.warning("%s; recovering the log although it was closed cleanly", fault.message)
            return None

    # An unclean stop

    def _recover(self, recovery_point: int) -> tuple[int, int | None]:
        """Check every batch from the recovery point on.

        Returns the offset where the intact log ends, and that of the first marker among the checked batches.
        """
        started = self._clock.monotonic()
        bases = [segment.base_offset for segment in self._segments]
        first = max((number for number, base in enumerate(bases) if base <= recovery_point), default=0)
        scan = _Scan(bases[first], self._leader_epochs)
        for number in range(first, len(self._segments)):
            if self._interrupted():
                raise RecoveryInterrupted
            if not scan.check(self._segments[number], recovery_point):
                self._drop_segments_after(number)
                break
        if not self._config.preallocate:
            self._segments[-1].release_unused_space()
        if scan.batches or scan.cut_bytes:
            logger.info(
                "%s: recovered in %.0f ms: checked %d batches from offset %d on, cut %d bytes, ends at %d",
                self._directory,
                (self._clock.monotonic() - started) * 1000,
                scan.batches,
                min(recovery_point, scan.next_offset),
                scan.cut_bytes,
                scan.next_offset,
            )
        return scan.next_offset, scan.first_marker_offset

    def _drop_segments_after(self, number: int) -> None:
        lost = self._segments[number + 1 :]
        if lost:
            logger.warning(
                "%s: removing %d segments (%d bytes) that follow the corrupt batch",
                self._directory,
                len(lost),
                sum(segment.size for segment in lost),
            )
            self._remove_segments(lost)
            del self._segments[number + 1 :]

    # Transactions

    def _check_transaction_indexes(self, indexed_up_to: int) -> int:
        """Drop what the transaction indexes hold from an offset on, and everything where they are corrupt.

        Returns the offset from which replaying the log has to fill them again.
        """
        for segment in self._segments:
            index = segment.transaction_index
            if index is None:
                continue
            fault = index.fault()
            if fault:
                logger.warning("%s: %s; rebuilding it", self._directory, fault)
                index.clear()
                indexed_up_to = min(indexed_up_to, segment.base_offset)
        for segment in self._segments:
            if segment.transaction_index is not None:
                segment.transaction_index.truncate(indexed_up_to)
                segment.transaction_index.release()
        return indexed_up_to

    def _remove_stray_snapshots(self, end_offset: int) -> int:
        """Keep the segments' own snapshots and the newest; returns its offset."""
        newest = max((offset for offset in self._snapshot_offsets if offset <= end_offset), default=-1)
        kept = {newest, *(segment.base_offset for segment in self._segments)}
        for offset in self._snapshot_offsets:
            if offset not in kept or offset > end_offset:
                self._disk.remove(snapshot_path(self._directory, offset))
        return newest


class _Scan:
    """The walk over all batches of an unclean log."""

    def __init__(self, next_offset: int, leader_epochs: LeaderEpochs) -> None:
        self.next_offset = next_offset
        self.batches = 0
        self.cut_bytes = 0
        self.first_marker_offset: int | None = None
        self._leader_epochs = leader_epochs

    def check(self, segment: Segment, recovery_point: int) -> bool:
        """Rebuild what is derived from a segment's batches; False where it had to be cut."""
        file_bytes = segment.size
        self.next_offset = max(self.next_offset, segment.base_offset)
        if segment.base_offset < recovery_point:
            # What was flushed is trusted, as far as the indexes lead to it.
            segment.forget_contents_after(recovery_point - 1)
        else:
            segment.forget_contents()
        fault = self._account_for_batches(segment, file_bytes)
        if fault:
            self._cut(segment, file_bytes, fault)
        _complete_indexes(segment)
        return fault is None

    def _account_for_batches(self, segment: Segment, end: int) -> str | None:
        if not end:
            return None
        position = segment.size
        largest_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        with (
            mmap.mmap(segment.file.fileno(), end, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as content,
        ):
            while position < end:
                if end - position < HEADER_BYTES:
                    return "the file ends within a batch header"
                header = read_header(content, position)
                size = header.length + LOG_OVERHEAD_BYTES
                last_offset = header.base_offset + header.last_offset_delta
                if header.magic != MAGIC or size < HEADER_BYTES or last_offset < header.base_offset:
                    return "there is no batch where one should start"
                if position + size > end:
                    return "the file ends within a batch"
                if header.base_offset < self.next_offset or last_offset > largest_offset:
                    return f"a batch starts at offset {header.base_offset} instead of {self.next_offset}"
                if header.crc != crc32c(content[position + ATTRIBUTES_POSITION : position + size]):
                    return "the checksum of a batch does not match"
                segment.account_for(size, last_offset, header.max_timestamp)
                if header.attributes & CONTROL_BIT and self.first_marker_offset is None:
                    self.first_marker_offset = header.base_offset
                if header.leader_epoch > self._leader_epochs.latest:
                    self._leader_epochs.assign(header.leader_epoch, header.base_offset)
                self.next_offset = last_offset + 1
                self.batches += 1
                position += size
        return None

    def _cut(self, segment: Segment, file_bytes: int, fault: str) -> None:
        cut = file_bytes - segment.size
        self.cut_bytes += cut
        logger.warning(
            "%s: %s at offset %d (position %d); cutting the last %d bytes",
            segment.log_path,
            fault,
            self.next_offset,
            segment.size,
            cut,
        )
        segment.truncate_file()


def _complete_indexes(segment: Segment) -> None:
    try:
        segment.complete_indexes()
    except OSError as failure:
        # A full disk: they serve from memory, and are rebuilt once more after the next start.
        logger.warning("%s: cannot write the rebuilt indexes: %s", segment.log_path, failure)


def _file_sizes(directory: Path) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
