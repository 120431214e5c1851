"""What a broker does on the side: flushing, retention, checkpoints, letting go of idle files.

All of it starts on the broker loop; what waits for the disk runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.errors import KafkaError
from millrace.replication.partition import Partition
from millrace.replication.partitions import Partitions

logger = logging.getLogger(__name__)

FLUSH_TICK_SECONDS = 0.5
IDLE_FILES_SECONDS = 60.0

RunInThread = Callable[[Callable[[], object]], asyncio.Future[object]]


class Upkeep:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self, partitions: Partitions, config: BrokerConfig, *, clock: Clock, run_in_thread: RunInThread
    ) -> None:
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._dirty_since: dict[Partition, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._spawn(self._every(lambda: FLUSH_TICK_SECONDS, self.flush_due))
        self._spawn(self._every(self._checkpoint_seconds, self.checkpoint))
        self._spawn(self._every(lambda: IDLE_FILES_SECONDS, self.release_idle_files))
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
        self, seconds: Callable[[], float], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await asyncio.sleep(seconds())
            await self._attempt(work)

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One round that failed must not be the last one."""
        try:
            await work()
        except (OSError, KafkaError) as error:
            logger.error("%s failed: %s; it is tried again", work.__name__.replace("_", " "), error)

    # Flushing

    async def flush_due(self) -> None:
        """Force to disk what has waited for longer than its topic's flush.ms."""
        now = self._clock.monotonic()
        self._dirty_since = {
            partition: self._dirty_since.get(partition, now)
            for partition in self._partitions
            if partition.log.unflushed_messages
        }
        for partition, since in list(self._dirty_since.items()):
            if (now - since) * 1000 >= partition.log.config.flush_ms:
                await self._flush(partition)
                self._dirty_since[partition] = self._clock.monotonic()

    async def _flush(self, partition: Partition) -> None:
        """Flush one partition; that it cannot be flushed is no reason to leave out the others."""
        try:
            flush = partition.log.begin_flush()
            if flush is not None:
                await self._run_in_thread(flush.run)
                flush.complete()
        except (OSError, KafkaError) as error:
            logger.error("cannot flush %s-%d: %s; it is tried again", partition.topic, partition.index, error)

    def _checkpoint_seconds(self) -> float:
        return self._config.log_flush_offset_checkpoint_interval_ms / 1000

    async def checkpoint(self) -> None:
        self._partitions.checkpoint()

    async def release_idle_files(self) -> None:
        for partition in self._partitions:
            partition.log.release_idle_files()

    # Retention

    async def _retain(self) -> None:
        await asyncio.sleep(self._config.log_initial_task_delay_ms / 1000)
        while True:
            await self._attempt(self.apply_retention)
            await asyncio.sleep(self._config.log_retention_check_interval_ms / 1000)

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
            await asyncio.sleep(delay_ms / 1000)
            await self._run_in_thread(lambda: _remove(files))

        self._spawn(remove())


def _remove(files: list[Path]) -> None:
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
