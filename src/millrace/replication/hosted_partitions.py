"""The partitions that this broker hosts: their logs, and which of them it leads."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from millrace.clock import Clock
from millrace.cluster.image import ClusterImage
from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.metrics import Family, Histogram, Kind, MetricName, family, single
from millrace.replication.partition import Partition
from millrace.steps import Steps
from millrace.storage.log import PRODUCER_ID_EXPIRATION_MS, Log
from millrace.storage.log_dir import LogDir, doomed_path
from millrace.storage.recovery import RecoveryInterrupted

logger = logging.getLogger(__name__)

# Logs that are closed at the same time: their fsyncs share the file system's commits.
CLOSING_THREADS = 16

PRODUCED_BATCHES = MetricName("kafka.server", "BrokerTopicMetrics", "TotalProduceRequestsPerSec")
MESSAGES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec")
BYTES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec")
FLUSH_TIME = MetricName("kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs")
PARTITION_COUNT = MetricName("kafka.server", "ReplicaManager", "PartitionCount")
LEADER_COUNT = MetricName("kafka.server", "ReplicaManager", "LeaderCount")
OFFLINE_COUNT = MetricName("kafka.server", "ReplicaManager", "OfflineReplicaCount")

Key = TypeVar("Key")
RunLater = Callable[[Callable[[], object]], object]
"""Runs slow file work off the loop."""


class HostedPartitions:
    """Owned by the broker loop; not thread-safe. The reconciler opens, leads and removes; others look up."""

    def __init__(
        self,
        log_dirs: list[LogDir],
        *,
        clock: Clock,
        disk: Disk,
        run_later: RunLater,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        self.log_dirs = log_dirs
        self.image = ClusterImage()
        """The newest image: it tells unknown partitions from those that another broker leads."""
        self._clock = clock
        self._disk = disk
        self._run_later = run_later
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._led: dict[str, dict[int, Partition]] = {}
        self._led_by_id: dict[bytes, dict[int, Partition]] = {}
        self._homes: dict[tuple[str, int], LogDir] = {}
        self._offline: dict[tuple[str, int], str] = {}
        self._stopping = threading.Event()
        self._flush_times_ms = Histogram()
        for log_dir in log_dirs:
            for name, index in log_dir.partitions():
                self._homes[name, index] = log_dir
            for doomed in log_dir.doomed_directories():
                run_later(partial(shutil.rmtree, doomed, ignore_errors=True))

    # Looking up

    def leader(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads.

        Raises NOT_LEADER_OR_FOLLOWER if another broker leads it or its log is not open yet,
        KAFKA_STORAGE_ERROR if its log cannot be opened, and UNKNOWN_TOPIC_OR_PARTITION if there is none.
        """
        try:
            return self._led[topic][index]
        except KeyError:
            raise self._not_led(topic, index) from None

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition:
        try:
            return self._led_by_id[topic_id][index]
        except KeyError:
            raise self._not_led(self.topic_name(topic_id), index) from None

    def _not_led(self, topic: str, index: int) -> KafkaError:
        reason = self._offline.get((topic, index))
        if reason is not None:
            return KafkaError(Error.KAFKA_STORAGE_ERROR, reason)
        if self.image.partition(topic, index) is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)

    def topic_name(self, topic_id: bytes) -> str:
        return self.image.topic_by_id(topic_id).name

    def find(self, topic: str, index: int) -> Partition | None:
        """A partition whose log is open here, whichever broker leads it."""
        return self._by_topic.get(topic, {}).get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_topic.get(topic, {}).values())

    def in_dir(self, log_dir: LogDir) -> list[Partition]:
        return [partition for partition in self if self._homes[partition.topic, partition.index] is log_dir]

    def offline_reason(self, topic: str, index: int) -> str | None:
        """Why a partition's log could not be opened, if so."""
        return self._offline.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        for of_topic in self._by_topic.values():
            yield from of_topic.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def families(self) -> Steps[list[Family]]:
        """The appends of each topic, the flushes of all, and how many partitions there are."""
        batches: list[tuple[dict[str, str], int]] = []
        messages: list[tuple[dict[str, str], int]] = []
        size: list[tuple[dict[str, str], int]] = []
        for topic in list(self._by_topic):
            labels = {"topic": topic}
            logs = [partition.log for partition in self.of_topic(topic)]
            batches.append((labels, sum(log.appended_batches for log in logs)))
            messages.append((labels, sum(log.appended_messages for log in logs)))
            size.append((labels, sum(log.appended_bytes for log in logs)))
            yield
        led = sum(map(len, self._led.values()))
        return [
            family(PRODUCED_BATCHES, Kind.COUNTER, batches),
            family(MESSAGES_IN, Kind.COUNTER, messages),
            family(BYTES_IN, Kind.COUNTER, size),
            single(FLUSH_TIME, Kind.HISTOGRAM, self._flush_times_ms.distribution()),
            single(PARTITION_COUNT, Kind.GAUGE, len(self)),
            single(LEADER_COUNT, Kind.GAUGE, led),
            single(OFFLINE_COUNT, Kind.GAUGE, len(self._offline)),
        ]

    # Opening and removing

    def opening(self, topic: str, topic_id: bytes, index: int, config: LogConfig) -> Callable[[], Log]:
        """The slow work of opening a partition's log, new or as it was left; for a thread.

        Its result goes to `opened`, its failure to `failed`.
        """
        key = (topic, index)
        known_home = self._homes.get(key)
        home = self._homes[key] = known_home or self._emptiest_dir()
        if known_home is None:
            self._clear(home, topic, index)
        recovery_point, log_start_offset = home.recovery_points.get(*key), home.log_start_offsets.get(*key)
        high_watermark = home.high_watermarks.get(*key)

        def open_log() -> Log:
            if self._stopping.is_set():
                raise RecoveryInterrupted
            log = Log.open(
                home.partition_path(topic, index),
                config,
                clock=self._clock,
                disk=self._disk,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                clean=home.clean_shutdown,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                # A new log has nothing to recover, and a stop during its creation is clean.
                interrupted=self._stopping.is_set if known_home is not None else lambda: False,
            )
            home.write_partition_metadata(topic, index, topic_id)
            return log

        return open_log

    def stop_opening(self) -> None:
        """Open no further log, and let the recovery of those that are being opened end soon."""
        self._stopping.set()

    def opened(self, topic: str, topic_id: bytes, index: int, log: Log) -> Partition:
        """Host a partition whose log has been opened."""
        log.flush_times_ms = self._flush_times_ms
        partition = Partition(topic, topic_id, index, log)
        self._by_topic.setdefault(topic, {})[index] = partition
        return partition

    def failed(self, topic: str, index: int, error: Exception) -> None:
        """Take a partition whose log cannot be opened out of service; the others are not affected."""
        home = self._homes[topic, index]
        reason = f"the log of {topic}-{index} in {home.path} cannot be opened: {error}"
        logger.error("%s; the other partitions are served", reason)
        self._offline[topic, index] = reason

    def lead(self, partition: Partition) -> None:
        """Serve a partition as its leader."""
        self._led.setdefault(partition.topic, {})[partition.index] = partition
        self._led_by_id.setdefault(partition.topic_id, {})[partition.index] = partition

    def leads(self, partition: Partition) -> bool:
        return partition.index in self._led.get(partition.topic, ())

    def follow(self, partition: Partition) -> None:
        """Stop serving a partition as its leader."""
        _drop(self._led, partition.topic, partition.index)
        _drop(self._led_by_id, partition.topic_id, partition.index)

    def _clear(self, home: LogDir, topic: str, index: int) -> None:
        """Drop what failing disks may have kept of a deleted topic of this name."""
        home.forget({(topic, index)})
        directory = home.partition_path(topic, index)
        if directory.exists():
            doomed = doomed_path(directory)
            self._disk.rename(directory, doomed)
            self._run_later(partial(shutil.rmtree, doomed, ignore_errors=True))

    def _emptiest_dir(self) -> LogDir:
        if len(self.log_dirs) == 1:
            return self.log_dirs[0]
        homes = list(self._homes.values())
        return min(self.log_dirs, key=homes.count)

    def remove(self, topic: str, indexes: set[int]) -> None:
        """Stop hosting partitions at once; their files are removed in the background.

        Raises KafkaError if a directory cannot be renamed; the other directories are removed all the same.
        """
        keys = {(topic, index) for index in indexes if (topic, index) in self._homes}
        homes = {key: self._homes.pop(key) for key in keys}
        for log_dir in self.log_dirs:
            self._forget_checkpoints(log_dir, {key for key, home in homes.items() if home is log_dir})
        failures: list[KafkaError] = []
        for key, home in homes.items():
            self._offline.pop(key, None)
            partition = self.find(*key)
            if partition is None:
                self._remove_unopened(home, *key)
                continue
            self.follow(partition)
            _drop(self._by_topic, *key)
            try:
                self._run_later(partition.log.delete())
            except KafkaError as failure:
                failures.append(failure)
            partition.resign()
        if failures:
            raise failures[0]

    def _remove_unopened(self, home: LogDir, topic: str, index: int) -> None:
        try:
            self._clear(home, topic, index)
        except OSError as error:
            # The cause that kept the log from being opened may keep it from being removed.
            logger.warning("%s: cannot remove %s-%d: %s", home.path, topic, index, error)

    def _forget_checkpoints(self, log_dir: LogDir, partitions: set[tuple[str, int]]) -> None:
        try:
            log_dir.forget(partitions)
        except OSError as error:
            # A full disk gets room by deleting, so deleting must not fail for lack of room.
            logger.warning(
                "%s: cannot drop the checkpoints of deleted partitions yet: %s", log_dir.path, error
            )

    def forget(self, topic: str, index: int) -> None:
        """Ignore from now on a partition directory that was found at the start."""
        home = self._homes.pop((topic, index), None)
        if home is not None:
            home.forget({(topic, index)})

    def reconfigure(self, topic: str, config: LogConfig) -> None:
        for partition in self.of_topic(topic):
            partition.reconfigure(config)

    def truncate(self, partition: Partition, offset: int) -> None:
        """Drop the records of a follower from an offset on: its leader does not have them.

        The recovery point goes back first, and on disk: records that take the place of dropped ones must not
        be trusted because those were once flushed.
        """
        log, home = partition.log, self._homes[partition.topic, partition.index]
        if offset < log.recovery_point:
            log.recovery_point = offset
            home.recovery_points.update({(partition.topic, partition.index): offset})
            home.recovery_points.write(durable=True)
        retired = partition.truncate_to(offset)
        self._run_later(partial(_remove_files, retired))

    def restart(self, partition: Partition, offset: int) -> None:
        """Drop all records of a follower, which is behind the start of its leader's log, and begin there."""
        log, home = partition.log, self._homes[partition.topic, partition.index]
        key = (partition.topic, partition.index)
        home.recovery_points.update({key: 0})
        home.recovery_points.write(durable=True)
        self._run_later(partial(_remove_files, log.restart_at(offset)))
        home.log_start_offsets.update({key: offset})

    # Stopping

    def close(self) -> bool:
        """Flush and close every log, and mark the stop as clean.

        Returns whether everything could be written. Failures are logged; the next start recovers the logs.
        """
        # The next start has to check logs that could not be opened, or whose recovery was interrupted.
        unopened = any(
            self.find(*key) is None and home.partition_path(*key).exists()
            for key, home in self._homes.items()
        )
        with ThreadPoolExecutor(CLOSING_THREADS, thread_name_prefix="close") as threads:
            closed = all(list(threads.map(_close, self)))
        is_clean = closed and not unopened
        self.update_checkpoints()
        for log_dir in self.log_dirs:
            try:
                log_dir.write_checkpoints()
                if is_clean:
                    log_dir.mark_clean_shutdown()
            except OSError as error:
                closed = False
                logger.error("cannot mark the stop as clean in %s: %s", log_dir.path, error)
            log_dir.close()
        return closed

    def abandon(self) -> None:
        """Let go of every file as a killed process would."""
        for partition in self:
            partition.log.abandon()
        for log_dir in self.log_dirs:
            log_dir.close()

    # Checkpoints

    def update_checkpoints(self) -> None:
        """Note how far each log is known to be on disk, and where it starts.

        `LogDir.write_checkpoints` then writes it, in a thread.
        """
        for log_dir in self.log_dirs:
            hosted = self.in_dir(log_dir)
            # Logs that are not open, or not yet, keep what was written of them before.
            unopened = [
                key for key, home in self._homes.items() if home is log_dir and self.find(*key) is None
            ]
            log_dir.recovery_points.replace(
                {key: log_dir.recovery_points.get(*key) for key in unopened}
                | {(p.topic, p.index): p.log.recovery_point for p in hosted}
            )
            log_dir.log_start_offsets.replace(
                {key: log_dir.log_start_offsets.get(*key) for key in unopened}
                | {(p.topic, p.index): p.log.log_start_offset for p in hosted}
            )
            log_dir.high_watermarks.replace(
                {key: log_dir.high_watermarks.get(*key) for key in unopened}
                | {(p.topic, p.index): p.high_watermark for p in hosted if p.is_replicated}
            )

    def moved_log_starts(self, partitions: Iterable[Partition]) -> list[Callable[[], None]]:
        """Note where logs start now; returns the slow writing of it, for threads.

        Once it is written, no restart brings back the records before.
        """
        moved: dict[LogDir, dict[tuple[str, int], int]] = {}
        for partition in partitions:
            key = (partition.topic, partition.index)
            if self.find(*key) is partition:
                moved.setdefault(self._homes[key], {})[key] = partition.log.log_start_offset
        for home, offsets in moved.items():
            home.log_start_offsets.update(offsets)
        return [home.log_start_offsets.write for home in moved]


def _close(partition: Partition) -> bool:
    """Close a log, in a thread that has it to itself; returns whether all of it is on disk."""
    try:
        partition.log.close()
    except (OSError, KafkaError) as error:
        logger.error("cannot close the log of %s-%d: %s", partition.topic, partition.index, error)
        return False
    return True


def _drop(partitions: dict[Key, dict[int, Partition]], key: Key, index: int) -> None:
    hosted = partitions.get(key, {})
    hosted.pop(index, None)
    if not hosted:
        partitions.pop(key, None)


def _remove_files(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
