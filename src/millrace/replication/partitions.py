"""Every partition this broker hosts, by topic and index."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from functools import partial

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.storage.log import PRODUCER_ID_EXPIRATION_MS, Log
from millrace.storage.log_dir import LogDir, doomed_path

logger = logging.getLogger(__name__)

RunLater = Callable[[Callable[[], object]], object]
"""Runs slow file work off the loop."""


class Partitions:
    """Owned by the broker loop; not thread-safe."""

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
        self._clock = clock
        self._disk = disk
        self._run_later = run_later
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        self._homes: dict[tuple[str, int], LogDir] = {}
        self._offline: dict[tuple[str, int], str] = {}
        for log_dir in log_dirs:
            for name, index in log_dir.partitions():
                self._homes[name, index] = log_dir
            for doomed in log_dir.doomed_directories():
                run_later(partial(shutil.rmtree, doomed, ignore_errors=True))

    # Looking up

    def get(self, topic: str, index: int) -> Partition:
        try:
            return self._by_topic[topic][index]
        except KeyError:
            raise self._missing(topic, index) from None

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        try:
            return self._by_topic[self._names[topic_id]][index]
        except KeyError:
            raise self._missing(self.topic_name(topic_id), index) from None

    def _missing(self, topic: str, index: int) -> KafkaError:
        reason = self._offline.get((topic, index))
        if reason is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, reason)

    def topic_name(self, topic_id: bytes) -> str:
        name = self._names.get(topic_id)
        if name is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID)
        return name

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

    # Creating and deleting

    def create(self, topic: str, topic_id: bytes, index: int, config: LogConfig) -> Partition | None:
        """Open the partition's log, new or as it was left; None when it cannot be opened.

        A log that cannot be opened takes only itself out of service, with its reason.
        """
        self._names[topic_id] = topic
        key = (topic, index)
        known_home = self._homes.get(key)
        home = self._homes[key] = known_home or self._emptiest_dir()
        try:
            if known_home is None:
                self._clear(home, topic, index)
            log = self._open(home, topic, index, config)
            home.write_partition_metadata(topic, index, topic_id)
        except (OSError, KafkaError) as error:
            reason = f"the log of {topic}-{index} in {home.path} cannot be opened: {error}"
            logger.error("%s; the other partitions are served", reason)
            self._offline[key] = reason
            return None
        partition = Partition(topic, topic_id, index, log)
        self._by_topic.setdefault(topic, {})[index] = partition
        return partition

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

    def _open(self, home: LogDir, topic: str, index: int, config: LogConfig) -> Log:
        return Log.open(
            home.partition_path(topic, index),
            config,
            clock=self._clock,
            disk=self._disk,
            recovery_point=home.recovery_point(topic, index),
            log_start_offset=home.log_start_offset(topic, index),
            clean=home.clean_shutdown,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )

    def delete(self, topic: str) -> None:
        """Forget the topic at once; its files go in the background.

        Raises KafkaError if a directory can be neither renamed nor, therefore, removed; the others are.
        """
        hosted = self._by_topic.pop(topic, {})
        offline = [index for name, index in self._offline if name == topic]
        self._names = {topic_id: name for topic_id, name in self._names.items() if name != topic}
        for log_dir in self.log_dirs:
            self._forget_checkpoints(
                log_dir, {(topic, index) for index in hosted if self._homes[topic, index] is log_dir}
            )
        failures: list[KafkaError] = []
        for partition in hosted.values():
            del self._homes[topic, partition.index]
            try:
                self._run_later(partition.log.delete())
            except KafkaError as failure:
                failures.append(failure)
            partition.wake()
        for index in offline:
            del self._offline[topic, index]
            self._delete_offline(self._homes.pop((topic, index)), topic, index)
        if failures:
            raise failures[0]

    def _delete_offline(self, home: LogDir, topic: str, index: int) -> None:
        try:
            self._clear(home, topic, index)
        except OSError as error:
            # What kept it from being opened may be this very trouble.
            logger.warning("%s: cannot remove %s-%d: %s", home.path, topic, index, error)

    def _forget_checkpoints(self, log_dir: LogDir, partitions: set[tuple[str, int]]) -> None:
        try:
            log_dir.forget(partitions)
        except OSError as error:
            # Deleting is how a full disk gets room again, so it must not fail for want of room.
            logger.warning(
                "%s: cannot drop the checkpoints of deleted partitions yet: %s", log_dir.path, error
            )

    def forget(self, topic: str, index: int) -> None:
        """Take no notice any more of a partition directory that was found at the start."""
        home = self._homes.pop((topic, index), None)
        if home is not None:
            home.forget({(topic, index)})

    def reconfigure(self, topic: str, config: LogConfig) -> None:
        for partition in self.of_topic(topic):
            partition.log.config = config

    # Stopping

    def close(self) -> None:
        """Flush and close every log, and mark the stop as clean; what cannot be written costs a recovery."""
        failed = False
        for partition in self:
            try:
                partition.log.close()
            except (OSError, KafkaError) as error:
                failed = True
                logger.error("cannot close the log of %s-%d: %s", partition.topic, partition.index, error)
        for log_dir in self.log_dirs:
            try:
                self._checkpoint(log_dir)
                if not failed:
                    log_dir.mark_clean_shutdown()
            except OSError as error:
                logger.error("cannot mark the stop as clean in %s: %s", log_dir.path, error)
            log_dir.close()

    def abandon(self) -> None:
        """Let go of every file as a killed process would."""
        for partition in self:
            partition.log.abandon()
        for log_dir in self.log_dirs:
            log_dir.close()

    def checkpoint(self) -> None:
        """Write down how far each log is known to be on disk, and where it starts."""
        for log_dir in self.log_dirs:
            self._checkpoint(log_dir)

    def _checkpoint(self, log_dir: LogDir) -> None:
        hosted = self.in_dir(log_dir)
        log_dir.write_recovery_points({(p.topic, p.index): p.log.recovery_point for p in hosted})
        log_dir.write_log_start_offsets({(p.topic, p.index): p.log.log_start_offset for p in hosted})
