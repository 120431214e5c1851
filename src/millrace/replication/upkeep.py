"""A broker's background work: flushing, retention, checkpoints, closing idle files.

All of it starts on the broker loop; work that waits for the disk runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from millrace.clock import Clock
from millrace.config import BrokerConfig, LogConfig
from millrace.errors import KafkaError
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.partition import Partition
from millrace.storage import holes
from millrace.storage.active_file import ActiveFile
from millrace.storage.cleaner_checkpoint import read_clean_offsets
from millrace.storage.log import Log
from millrace.timers import Timers, pause

logger = logging.getLogger(__name__)

FLUSH_TICK_MS = 500
DEFAULT_FLUSH_MS = LogConfig().flush_ms
BULK_BYTES = 16 * 1024 * 1024
# Linux writes back what is older than this by itself, so that a sync then finds little to do.
WRITTEN_BACK_SECONDS = 30.0
IDLE_FILES_MS = 60_000

RunInThread = Callable[[Callable[[], object]], asyncio.Future[object]]


class _Dirty:
    """A log with unflushed records: since when, how large it was then, and when it last grew."""

    __slots__ = ("_grew_at", "_last_size", "_since", "_size")

    def __init__(self, now: float, size: int) -> None:
        self._since = self._grew_at = now
        self._size = self._last_size = size

    def is_due(self, log: Log, now: float) -> bool:
        """Whether to flush the log now: after flush.ms, or after a bulk load once that is long over.

        Unless a topic asks for something else, a bulk load is left to the system's own writing back:
        syncing gigabytes as they come costs more than all the rest of taking them in.
        """
        if log.size != self._last_size:
            self._last_size, self._grew_at = log.size, now
        flush_ms = log.config.flush_ms
        if flush_ms == DEFAULT_FLUSH_MS and log.size - self._size > BULK_BYTES:
            return now - self._grew_at >= WRITTEN_BACK_SECONDS
        return (now - self._since) * 1000 >= flush_ms


class Upkeep:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        partitions: HostedPartitions,
        config: BrokerConfig,
        *,
        clock: Clock,
        timers: Timers,
        run_in_thread: RunInThread,
    ) -> None:
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._timers = timers
        self._run_in_thread = run_in_thread
        self._dirty: dict[Partition, _Dirty] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._spawn(self._every(lambda: FLUSH_TICK_MS, self.flush_due))
        self._spawn(self._every(self._checkpoint_interval_ms, self.checkpoint))
        self._spawn(self._every(lambda: IDLE_FILES_MS, self.release_idle_files))
        self._spawn(self._retain())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _every(
        self, interval_ms: Callable[[], float], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await pause(self._timers, interval_ms())
            await self._attempt(work)

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One round that failed must not be the last one."""
        try:
            await work()
        except (OSError, KafkaError) as error:
            logger.error("%s failed: %s; it is tried again", work.__name__.replace("_", " "), error)

    # Deleted files

    async def report_holes(self) -> None:
        """Say which records are missing because segments were deleted while the broker was stopped."""
        for log_dir in self._partitions.log_dirs:
            compacted = read_clean_offsets(log_dir.path)
            for partition in self._partitions.in_dir(log_dir):
                log = partition.log
                is_compacted = (
                    "compact" in log.config.cleanup_policy or (log.topic, log.partition) in compacted
                )
                if len(log.segments) > 1 and not is_compacted:
                    await self._run_in_thread(partial(_report_holes, log.directory, log.log_start_offset))

    # Flushing

    async def flush_due(self) -> None:
        """Force to disk what has waited for longer than its topic's flush.ms."""
        now = self._clock.monotonic()
        self._dirty = {
            partition: self._dirty.get(partition) or _Dirty(now, partition.log.size)
            for partition in self._partitions
            if partition.log.unflushed_messages and partition.log.read_only_reason is None
        }
        await self._check_active_files()
        for partition, dirty in list(self._dirty.items()):
            if partition.log.read_only_reason is None and dirty.is_due(partition.log, now):
                await self._flush(partition)
                del self._dirty[partition]

    async def _flush(self, partition: Partition) -> None:
        """Flush one partition; that it cannot be flushed is no reason to leave out the others."""
        try:
            flush = partition.log.begin_flush()
            if flush is not None:
                await self._run_in_thread(flush.run)
                flush.complete()
        except (OSError, KafkaError) as error:
            logger.error("cannot flush %s-%d: %s", partition.topic, partition.index, error)

    async def _check_active_files(self) -> None:
        """Find the logs whose active file was deleted or replaced: records that they take would be lost."""
        written = [(partition.log, partition.log.active_file) for partition in self._dirty]
        missing: list[tuple[Log, ActiveFile]] = []

        def look() -> None:
            missing.extend(
                (log, file) for log, file in written if file is not None and not file.is_in_place()
            )

        if written:
            await self._run_in_thread(look)
        for log, file in missing:
            log.report_missing(file)

    def _checkpoint_interval_ms(self) -> float:
        return self._config.log_flush_offset_checkpoint_interval_ms

    async def checkpoint(self) -> None:
        self._partitions.update_checkpoints()
        for log_dir in self._partitions.log_dirs:
            await self._run_in_thread(log_dir.write_checkpoints)

    async def release_idle_files(self) -> None:
        for partition in self._partitions:
            partition.log.release_idle_files()

    # Retention

    async def _retain(self) -> None:
        await pause(self._timers, self._config.log_initial_task_delay_ms)
        while True:
            await self._attempt(self.apply_retention)
            await pause(self._timers, self._config.log_retention_check_interval_ms)

    async def apply_retention(self) -> None:
        """Let go of expired segments; their files go after file.delete.delay.ms."""
        for partition in list(self._partitions):
            try:
                files = partition.log.apply_retention()
            except KafkaError as error:
                logger.error("retention of %s-%d: %s", partition.topic, partition.index, error)
                continue
            if files:
                self.remove_later(files, partition.log.config.file_delete_delay_ms)

    def remove_later(self, files: list[Path], delay_ms: int) -> None:
        """Remove files off the loop, once readers that were handed them have had time to finish."""

        async def remove() -> None:
            await pause(self._timers, delay_ms)
            await self._run_in_thread(lambda: _remove(files))

        self._spawn(remove())


def _report_holes(directory: Path, log_start_offset: int) -> None:
    for hole in holes.between_segments(directory, log_start_offset):
        holes.report(directory, hole, "else consumers skip them")


def _remove(files: list[Path]) -> None:
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
