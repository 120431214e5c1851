"""A data directory: its lock, its checkpoints, and the partition directories in it."""

import json
import logging
import os
import re
import uuid
from collections.abc import Mapping, Set
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.checkpoints import CorruptCheckpoint, read_checkpoint, write_checkpoint
from millrace.storage.directory_lock import DirectoryLock
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
            self._recovery_points = read_offsets(path / RECOVERY_POINT_FILE)
            self._log_start_offsets = read_offsets(path / LOG_START_OFFSET_FILE)
            self._high_watermarks = read_offsets(path / HIGH_WATERMARK_FILE)
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
        """Where a partition's log lives."""
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

    def recovery_point(self, topic: str, index: int) -> int:
        """Up to which offset a log was known to be on disk."""
        return self._recovery_points.get((topic, index), 0)

    def log_start_offset(self, topic: str, index: int) -> int:
        """The first offset that was still to be read."""
        return self._log_start_offsets.get((topic, index), 0)

    def high_watermark(self, topic: str, index: int) -> int:
        """The end of the records that were known to be committed."""
        return self._high_watermarks.get((topic, index), 0)

    def write_recovery_points(self, offsets: Mapping[tuple[str, int], int], *, durable: bool = False) -> None:
        """Replace all recovery points; one that goes back has to be on disk before new records are."""
        self._recovery_points = self._write_offsets(
            RECOVERY_POINT_FILE, offsets, self._recovery_points, durable=durable
        )

    def write_high_watermarks(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Replace the high watermarks of all replicated partitions."""
        self._high_watermarks = self._write_offsets(HIGH_WATERMARK_FILE, offsets, self._high_watermarks)

    def write_log_start_offsets(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Replace all log start offsets; one of 0 is left out."""
        moved = {partition: offset for partition, offset in offsets.items() if offset}
        self._log_start_offsets = self._write_offsets(LOG_START_OFFSET_FILE, moved, self._log_start_offsets)

    def forget(self, partitions: Set[tuple[str, int]]) -> None:
        """Drop deleted partitions' checkpoints at once: new ones of their names must not inherit them."""
        for write, offsets in (
            (self.write_recovery_points, self._recovery_points),
            (self.write_log_start_offsets, self._log_start_offsets),
            (self.write_high_watermarks, self._high_watermarks),
        ):
            if not partitions.isdisjoint(offsets):
                write({known: offset for known, offset in offsets.items() if known not in partitions})

    def _write_offsets(
        self,
        name: str,
        offsets: Mapping[tuple[str, int], int],
        written: dict[tuple[str, int], int],
        *,
        durable: bool = False,
    ) -> dict[tuple[str, int], int]:
        current = dict(offsets)
        if current != written:
            entries = [(topic, index, offset) for (topic, index), offset in sorted(current.items())]
            # Late is harmless, torn is impossible: a recovery then only starts earlier.
            write_checkpoint(self.path / name, entries, self.disk, durable=durable)
        return current

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


def read_offsets(checkpoint: Path) -> dict[tuple[str, int], int]:
    """The offsets in a checkpoint by topic and partition; a damaged one holds none."""
    try:
        entries = read_checkpoint(checkpoint, fields=3)
        return {(topic, int(index)): int(offset) for topic, index, offset in entries}
    except (CorruptCheckpoint, ValueError) as fault:
        logger.warning("%s; its logs are checked from their start", fault)
        return {}


def doomed_path(directory: Path) -> Path:
    """A new name for a partition directory that is about to be removed."""
    unique = f".{uuid.uuid4().hex}{_DOOMED_SUFFIX}"
    # File names end at 255 bytes.
    return directory.with_name(directory.name[: 255 - len(unique)] + unique)
