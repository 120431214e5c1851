"""The log cleaner: chooses which log to compact when, has a process do it, swaps the result in."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.disk import Disk
from millrace.errors import KafkaError
from millrace.storage import swap
from millrace.storage.cleanable import Cleanable, is_overdue, survey
from millrace.storage.cleaner_checkpoint import read_clean_offsets, write_clean_offsets
from millrace.storage.compaction import Job, Pass, Replacement, Source
from millrace.storage.compaction_process import CompactionFailed, CompactionProcess, CorruptLog
from millrace.storage.log import Log
from millrace.storage.record_filter import KEY_COST_BYTES
from millrace.timers import Timers, pause

logger = logging.getLogger(__name__)

RunInThread = Callable[[Callable[[], object]], Awaitable[object]]
RemoveLater = Callable[[list[Path], int], None]
"""Removes files off the loop after so many milliseconds."""


# A log whose passes keep failing is tried less and less often, but at least this often.
LONGEST_BACKOFF_SECONDS = 600.0
MOST_DOUBLINGS = 20


class LogChanged(Exception):
    """The segments that were compacted are not in the log any more."""


@dataclass(slots=True)
class _Failures:
    """The passes over a log that failed in a row, and when the next one may begin."""

    count: int = 0
    retry_at: float = 0.0


class _CleanUpTo(NamedTuple):
    """The end of a log's clean part, which holds until the log is cut back."""

    offset: int
    truncations: int


class Cleaner:
    """Keeps compacted logs compact. Owned by the broker loop; the work itself runs in child processes."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        config: BrokerConfig,
        *,
        clock: Clock,
        timers: Timers,
        disk: Disk,
        run_in_thread: RunInThread,
        remove_later: RemoveLater,
    ) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock
        self._timers = timers
        self._disk = disk
        self._run_in_thread = run_in_thread
        self._remove_later = remove_later
        self._in_progress: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self._failures: dict[Log, _Failures] = {}
        # Number of unreadable batches that were reported, by log.
        self._unreadable_batches: dict[Log, int] = {}
        self._checkpoint_lock = asyncio.Lock()
        self._workers: list[asyncio.Task[None]] = []
        # By log, not by name: a topic that is deleted and created again starts from the beginning.
        self._clean_offsets: dict[Log, _CleanUpTo] = {}
        self._load_clean_offsets()

    def start(self) -> None:
        """Begin to look after the logs, also those that were opened since."""
        self._load_clean_offsets()
        if self._config.log_cleaner_enable:
            self._workers = [
                asyncio.create_task(self._work()) for _ in range(self._config.log_cleaner_threads)
            ]

    async def stop(self) -> None:
        """End what is under way; a pass cut short leaves its log as it was."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await pause(self._timers, self._config.log_cleaner_backoff_ms)
            try:
                await self.clean_due_logs()
            except Exception:
                # A failed round must not end the cleaner.
                logger.exception("cleaner pass failed; continuing")

    async def clean_due_logs(self) -> None:
        """Clean until no log is due any more, the dirtiest first."""
        failed: set[Log] = set()
        while (cleanable := self.dirtiest(failed)) is not None:
            if not await self.clean(cleanable):
                failed.add(cleanable.log)

    # Choosing

    def dirtiest(self, failed: Set[Log] = frozenset()) -> Cleanable | None:
        """The log that is due and has the largest dirty share, leaving out those that just failed."""
        now_ms = self._clock.now_ms()
        logs = list(self._logs())
        self._forget_all_but(set(logs))
        busy = self._in_progress | self._uncleanable | self._backing_off() | failed
        compacted = [log for log in logs if "compact" in log.config.cleanup_policy and log not in busy]
        candidates = (self._try_survey(log, now_ms) for log in compacted)
        due = [cleanable for cleanable in candidates if cleanable is not None and cleanable.is_due]
        return max(due, key=lambda cleanable: cleanable.dirty_ratio, default=None)

    def _backing_off(self) -> set[Log]:
        now = self._clock.monotonic()
        return {log for log, failures in self._failures.items() if failures.retry_at > now}

    def _try_survey(self, log: Log, now_ms: int) -> Cleanable | None:
        try:
            return self.survey(log, now_ms)
        except OSError as failure:
            logger.warning("%s: cannot check for compaction: %s", log.directory, failure)
        except KafkaError as failure:
            self._give_up(log, failure)
        return None

    def _give_up(self, log: Log, failure: Exception) -> None:
        self._uncleanable.add(log)
        logger.error("%s: compaction stopped until the next start: %s", log.directory, failure)

    def survey(self, log: Log, now_ms: int) -> Cleanable:
        """The dirty range of a log; rolls an active segment that has waited too long."""
        if is_overdue(log, log.segments[-1], now_ms):
            log.roll()
        return survey(log, self._first_dirty_offset(log), now_ms)

    def _first_dirty_offset(self, log: Log) -> int:
        clean_offset, truncations = self._clean_offsets.get(log, (log.log_start_offset, log.truncations))
        if log.log_start_offset <= clean_offset <= log.log_end_offset and truncations == log.truncations:
            return clean_offset
        if clean_offset > log.log_end_offset:
            logger.warning(
                "%s: compacted up to offset %d, but the log ends at %d; it counts as not compacted yet",
                log.directory,
                clean_offset,
                log.log_end_offset,
            )
        self._clean_offsets[log] = _CleanUpTo(log.log_start_offset, log.truncations)
        return log.log_start_offset

    # Cleaning

    async def clean(self, cleanable: Cleanable) -> bool:
        """Make one pass over a log; returns whether it succeeded."""
        log = cleanable.log
        self._in_progress.add(log)
        try:
            truncations = log.truncations
            done = await self._compact(cleanable, truncations)
            self._clean_offsets[log] = _CleanUpTo(done.end_offset, truncations)
            await self._write_clean_offsets(log.directory.parent)
        except CorruptLog as failure:
            self._give_up(log, failure)
        except LogChanged as change:
            logger.warning("%s: compaction called off: %s", log.directory, change)
        except (CompactionFailed, OSError) as failure:
            self._back_off(log, failure)
        else:
            self._failures.pop(log, None)
            self._report(log, done)
            return True
        finally:
            self._in_progress.discard(log)
        return False

    def _back_off(self, log: Log, failure: Exception) -> None:
        failures = self._failures.setdefault(log, _Failures())
        # The cleaner skips no round after the first failure, then 1, 3, 7 and so on.
        rounds = 2 ** min(failures.count, MOST_DOUBLINGS) - 1
        seconds = min(rounds * self._config.log_cleaner_backoff_ms / 1000, LONGEST_BACKOFF_SECONDS)
        failures.count += 1
        failures.retry_at = self._clock.monotonic() + seconds
        logger.warning(
            "%s: compaction failed (attempt %d, the next one in %.1f s or more): %s",
            log.directory,
            failures.count,
            seconds,
            failure,
        )

    def _report(self, log: Log, done: Pass) -> None:
        logger.info(
            "%s: compacted %d records to %d (%.1f MB to %.1f MB) in %.1f s, up to offset %d%s",
            log.directory,
            done.records_read,
            done.records_kept,
            done.bytes_read / 1e6,
            done.bytes_kept / 1e6,
            done.seconds,
            done.end_offset,
            "; log.cleaner.dedupe.buffer.size was too small for the rest" if done.dedupe_buffer_full else "",
        )
        # Every pass finds them again; report them once.
        if done.unreadable_batches > self._unreadable_batches.get(log, 0):
            self._unreadable_batches[log] = done.unreadable_batches
            logger.error(
                "%s: compaction cannot read %d batches and keeps them as they are, %s",
                log.directory,
                done.unreadable_batches,
                done.unreadable_reason,
            )

    async def _compact(self, cleanable: Cleanable, truncations: int) -> Pass:
        async with CompactionProcess(self.job(cleanable)) as process:
            async for replacement in process.replacements():
                await self._swap_in(cleanable.log, replacement, truncations)
            return process.done

    def job(self, cleanable: Cleanable) -> Job:
        """All that a process needs to know to clean a log."""
        log, config = cleanable.log, self._config
        buffer_bytes = config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor
        keys = int(buffer_bytes / max(1, config.log_cleaner_threads) / KEY_COST_BYTES)
        return Job(
            directory=str(log.directory),
            segments=[
                Source(segment.base_offset, segment.size, segment.offset_index.size, segment.time_index.size)
                for segment in log.segments
                if segment.base_offset < cleanable.first_uncleanable_offset
            ],
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            segment_bytes=log.config.segment_bytes,
            segment_index_bytes=log.config.segment_index_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            delete_retention_ms=log.config.delete_retention_ms,
            max_keys=max(1, keys),
            max_bytes_per_second=max(1.0, config.log_cleaner_io_max_bytes_per_second),
            now_ms=self._clock.now_ms(),
            producers=[
                (producer.producer_id, producer.last_offset)
                for producer in log.active_producers()
                if producer.batches
            ],
            bare_producers=[
                (producer.producer_id, producer.epoch)
                for producer in log.active_producers()
                if not producer.batches
            ],
            aborted=log.aborted_transactions(log.segments[0].base_offset, cleanable.first_uncleanable_offset),
        )

    async def _swap_in(self, log: Log, replacement: Replacement, truncations: int) -> None:
        directory, base_offset = log.directory, replacement.base_offset
        self._check_still_there(log, truncations)
        await self._run_in_thread(partial(swap.stage, directory, base_offset, self._disk))
        try:
            self._check_still_there(log, truncations)
            retired = log.replace_segments(replacement.replaces, base_offset)
            if retired is None:
                raise LogChanged("segments were deleted meanwhile")
        except (OSError, LogChanged):
            swap.unstage(directory, base_offset, self._disk)
            raise
        await self._run_in_thread(partial(self._disk.fsync_directory, directory))
        self._remove_later(retired, log.config.file_delete_delay_ms)

    def _check_still_there(self, log: Log, truncations: int) -> None:
        # A topic that was deleted may be there again, under the same name and in the same directory.
        if log not in self._logs():
            raise LogChanged("its topic was deleted meanwhile")
        if log.truncations != truncations:
            raise LogChanged("it was truncated meanwhile")

    # Clean offsets

    def _load_clean_offsets(self) -> None:
        by_directory: dict[Path, dict[tuple[str, int], int]] = {}
        for log in self._logs():
            directory = log.directory.parent
            if directory not in by_directory:
                by_directory[directory] = read_clean_offsets(directory)
            offset = by_directory[directory].get((log.topic, log.partition))
            if offset is not None:
                self._clean_offsets[log] = _CleanUpTo(offset, log.truncations)

    async def _write_clean_offsets(self, directory: Path) -> None:
        async with self._checkpoint_lock:
            self._forget_all_but(set(self._logs()))
            offsets = {
                (log.topic, log.partition): clean.offset
                for log, clean in self._clean_offsets.items()
                if log.directory.parent == directory
            }
            await self._run_in_thread(partial(write_clean_offsets, directory, offsets, self._disk))

    def _forget_all_but(self, logs: set[Log]) -> None:
        self._uncleanable &= logs
        for known in (self._clean_offsets, self._failures, self._unreadable_batches):
            for log in known.keys() - logs:
                del known[log]
