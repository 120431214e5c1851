"""`cleaner-offset-checkpoint`: up to which offset the logs of a data directory are clean."""

import logging
from collections.abc import Mapping
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.checkpoints import CorruptCheckpoint, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

FILE_NAME = "cleaner-offset-checkpoint"


def read_clean_offsets(directory: Path) -> dict[tuple[str, int], int]:
    """The first dirty offset by topic and partition; after damage the logs are cleaned from the start."""
    try:
        entries = read_checkpoint(directory / FILE_NAME, 3)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except (CorruptCheckpoint, ValueError, OSError) as fault:
        logger.warning("%s; its logs count as not compacted yet", fault)
        return {}


def write_clean_offsets(directory: Path, offsets: Mapping[tuple[str, int], int], disk: Disk) -> None:
    """Replace the file; slow, for it waits for the disk."""
    entries = [(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
    write_checkpoint(directory / FILE_NAME, entries, disk)
