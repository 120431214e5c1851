"""A data directory: its lock, its checkpoints, and the partition directories in it."""

import json
import logging
import os
import re
import uuid
from collections.abc import Set
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.directory_lock import DirectoryLock
from millrace.storage.offset_checkpoint import OffsetCheckpoint
from millrace.wire.schema import uuid_from_text, uuid_to_text

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DOOMED_SUFFIX = "-delete"


class LogDir:
    """One data directory, held by this broker alone until close(). Owned by the broker loop."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(path)
        try:
            self.recovery_points = OffsetCheckpoint(path / RECOVERY_POINT_FILE, disk)
            """The offset up to which each log was known to be on disk."""
            self.log_start_offsets = OffsetCheckpoint(path / LOG_START_OFFSET_FILE, disk)
            """The first offset of each log that was still to be read."""
            self.high_watermarks = OffsetCheckpoint(path / HIGH_WATERMARK_FILE, disk)
            """The end of the committed records of each replicated partition."""
            self.clean_shutdown = (path / CLEAN_SHUTDOWN_FILE).exists()
            if self.clean_shutdown:
                # From now on the stop is unclean until it is marked otherwise, even by a power cut.
                disk.remove(path / CLEAN_SHUTDOWN_FILE)
                disk.fsync_directory(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another broker have the directory."""
        self._lock.release()

    # Partition directories

    def partitions(self) -> list[tuple[str, int]]:
        """The topic and index of every partition directory."""
        return partitions_in(self.path)

    def partition_path(self, topic: str, index: int) -> Path:
        """Directory of a partition's log."""
        return self.path / f"{topic}-{index}"

    def doomed_directories(self) -> list[Path]:
        """Directories of deleted partitions whose removal was interrupted."""
        return [self.path / name for name in _directories(self.path) if name.endswith(_DOOMED_SUFFIX)]

    def topic_id(self, topic: str, index: int) -> bytes | None:
        """The topic id written beside a partition's log, None where there is none to be read."""
        path = self.partition_path(topic, index) / PARTITION_METADATA_FILE
        try:
            fields = dict(line.split(": ", 1) for line in path.read_text().splitlines())
            return uuid_from_text(fields["topic_id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError):
            logger.warning("%s is damaged; ignoring it", path)
            return None

    def write_partition_metadata(self, topic: str, index: int, topic_id: bytes) -> None:
        """Write the topic id beside a partition's log, where it is not there already."""
        if self.topic_id(topic, index) == topic_id:
            return
        path = self.partition_path(topic, index) / PARTITION_METADATA_FILE
        content = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n"
        self.disk.replace(path, content.encode(), durable=False)

    # Checkpoints

    def write_checkpoints(self) -> None:
        """Bring the checkpoint files up to date; for any thread."""
        for checkpoint in self._checkpoints:
            checkpoint.write()

    def forget(self, partitions: Set[tuple[str, int]]) -> None:
        """Drop the checkpoints of deleted partitions at once: new ones of that name must not inherit them."""
        for checkpoint in self._checkpoints:
            checkpoint.forget(partitions)
            checkpoint.write()

    @property
    def _checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks

    def mark_clean_shutdown(self) -> None:
        """Say that every log was closed, so that the next start need not check them."""
        content = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        self.disk.replace(self.path / CLEAN_SHUTDOWN_FILE, content.encode())


def partitions_in(directory: Path) -> list[tuple[str, int]]:
    """The topic and index of every partition directory in a data directory."""
    matches = (_PARTITION_DIRECTORY.fullmatch(name) for name in _directories(directory))
    return sorted((match[1], int(match[2])) for match in matches if match)


def _directories(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def doomed_path(directory: Path) -> Path:
    """A new name for a partition directory that is about to be removed."""
    unique = f".{uuid.uuid4().hex}{_DOOMED_SUFFIX}"
    # File names end at 255 bytes.
    return directory.with_name(directory.name[: 255 - len(unique)] + unique)
