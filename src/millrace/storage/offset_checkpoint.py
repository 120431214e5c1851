"""A checkpoint of one offset per partition, and the file that keeps it."""

import logging
import threading
from collections.abc import Mapping, Set
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.checkpoints import CorruptCheckpoint, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file; a damaged one holds none."""
    try:
        entries = read_checkpoint(path, fields=3)
        return {(topic, int(index)): int(offset) for topic, index, offset in entries}
    except (CorruptCheckpoint, ValueError) as fault:
        logger.warning("%s; its logs are checked from their start", fault)
        return {}


class OffsetCheckpoint:
    """Offsets in memory, which belong to the loop, and their file, which any thread may bring up to date.

    A partition that is left out has the offset 0.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        # Replaced, never changed: a thread may be writing it.
        self._offsets: Mapping[TopicPartition, int] = read_offsets(path)
        self._written: Mapping[TopicPartition, int] = self._offsets
        self._is_durable = True
        self._writing = threading.Lock()

    def get(self, topic: str, index: int) -> int:
        return self._offsets.get((topic, index), 0)

    def replace(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Put these offsets in the place of all others."""
        self._offsets = {partition: offset for partition, offset in offsets.items() if offset}

    def update(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Change the offsets of some partitions."""
        self._offsets = {**self._offsets, **offsets}

    def forget(self, partitions: Set[TopicPartition]) -> None:
        if not partitions.isdisjoint(self._offsets):
            self._offsets = {
                partition: offset
                for partition, offset in self._offsets.items()
                if partition not in partitions
            }

    def write(self, *, durable: bool = False) -> None:
        """Write the newest offsets to the file; slow if there are many.

        Threads wait for each other. After the wait, the file usually has the offsets already. Unless
        `durable`, the file is not forced to disk: an older file after a power cut makes recovery longer.
        """
        with self._writing:
            offsets = self._offsets
            if offsets == self._written and (self._is_durable or not durable):
                return
            entries = [(topic, index, offset) for (topic, index), offset in sorted(offsets.items())]
            write_checkpoint(self._path, entries, self._disk, durable=durable)
            self._written, self._is_durable = offsets, durable
