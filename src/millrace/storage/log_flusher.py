"""Bringing a log to disk: its flushes, the snapshots of its producers, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millrace.clock import Clock
from millrace.disk import Disk
from millrace.storage.flush import Flush, changed_directories, derived_files
from millrace.storage.producer_snapshot import Snapshots

if TYPE_CHECKING:
    from millrace.storage.log import Log

logger = logging.getLogger(__name__)

# After this many bytes a flush also snapshots the producers, so a recovery replays no more than that.
_SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024


class LogFlusher:
    """Flushes and closes one log, which is passed to each call. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_clock", "_disk", "_snapshot_size", "snapshots")

    def __init__(self, snapshots: Snapshots, log_size: int, *, clock: Clock, disk: Disk) -> None:
        self.snapshots = snapshots
        self._snapshot_size = log_size
        self._clock = clock
        self._disk = disk

    # Flushing

    def begin(self, log: Log) -> Flush | None:
        """Prepare a flush of everything appended so far; None if nothing is unflushed.

        Run its run() in a thread, then its complete() on the loop.
        """
        log.check_writable()
        if log.recovery_point == log.log_end_offset:
            return None
        with log.storing("flush"):
            return self._prepare(log)

    def _prepare(self, log: Log) -> Flush:
        dirty = log.segments_from(log.recovery_point)
        active = log.segments[-1]
        # A recovery starts from the active segment's newest index entry before the recovery point.
        self.write_indexes(log, active.write_indexes)
        if log.size - self._snapshot_size > _SNAPSHOT_INTERVAL_BYTES:
            self.take_snapshot(log)
        derived = list(derived_files(dirty, log.recovery_point, has_producers=bool(len(log.producers))))
        return Flush(
            self._disk,
            self._clock,
            directories=changed_directories(log.directory, log.segments, log.recovery_point, derived),
            files=[segment.file for segment in dirty],
            indexes=derived,
            active=active.active_file,
            end_offset=log.log_end_offset,
            end=partial(_end, log, log.truncations),
        )

    def flush(self, log: Log) -> None:
        """Force everything appended so far to disk, and wait for it."""
        flush = self.begin(log)
        if flush is not None:
            with log.storing("flush"):
                flush.run()
            flush.complete()

    def write_indexes(self, log: Log, write: Callable[[], None]) -> None:
        """Write indexes; a failure costs only their rebuilding."""
        try:
            write()
        except OSError as failure:
            logger.warning("%s: cannot write an index: %s; it will be rebuilt", log.directory, failure)

    # Snapshots of the producers

    def take_snapshot(self, log: Log) -> None:
        """Keep the producers as of the log's end."""
        bases = [segment.base_offset for segment in log.segments]
        if log.log_end_offset > bases[0]:
            self.snapshots.take(log.log_end_offset, log.producers, keep=bases)
        self._snapshot_size = log.size

    def truncate_snapshots(self, log: Log) -> None:
        """Drop the snapshots past the log's end, after it was cut back."""
        self.snapshots.truncate(log.log_end_offset)
        self._snapshot_size = min(self._snapshot_size, log.size)

    # Closing

    def close(self, log: Log) -> None:
        """Flush, complete the indexes and keep the producers, so that opening needs no recovery."""
        if log.read_only_reason is not None:
            self._forget_unwritten(log)
        self.flush(log)
        active = log.segments[-1]
        self.write_indexes(log, active.complete_indexes)
        self.take_snapshot(log)
        active.release_unused_space()

    def _forget_unwritten(self, log: Log) -> None:
        """Drop cached pages, so that recovery reads the disk and not the kernel's cache."""
        with log.storing("read"):
            for segment in log.segments_from(log.recovery_point):
                self._disk.forget_pages(segment.file.fileno())


def _end(log: Log, truncations: int, flush: Flush) -> None:
    """Take over the outcome of a flush; raises KafkaError if the log is read-only now."""
    failure = flush.failure
    if failure is not None:
        # The kernel drops pages it could not write and reports them once: later flushes prove nothing.
        log.read_only_reason = (
            f"{log.directory.name} is read-only: it cannot be flushed ({failure.strerror or failure}). "
            "Repair the disk and restart the broker; what has reached the disk is kept"
        )
    if flush.missing is not None:
        log.report_missing(flush.missing)
    if log.flush_times_ms is not None:
        log.flush_times_ms.observe(flush.seconds * 1000)
    log.check_writable()
    # After a truncation the flushed offsets may hold other batches by now.
    if truncations == log.truncations:
        log.recovery_point = max(log.recovery_point, min(flush.end_offset, log.log_end_offset))
