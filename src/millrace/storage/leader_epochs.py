"""Start offset of each leader epoch in a log (`leader-epoch-checkpoint`)."""

import logging
from pathlib import Path
from typing import NamedTuple

from millrace.disk import Disk
from millrace.storage.checkpoints import CorruptCheckpoint, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset that a leader epoch wrote."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """A log's leader epochs, ascending in epoch and offset."""

    __slots__ = ("_disk", "_path", "entries", "latest")

    def __init__(self, directory: Path, disk: Disk, entries: list[EpochStart]) -> None:
        self._path = directory / FILE_NAME
        self._disk = disk
        self.entries = entries
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH

    @classmethod
    def load(cls, directory: Path, disk: Disk) -> "LeaderEpochs":
        """Read the checkpoint; a damaged one counts as none, since recovery reads epochs from the batches."""
        entries: list[EpochStart] = []
        try:
            for epoch, start_offset in read_checkpoint(directory / FILE_NAME, fields=2):
                entries.append(EpochStart(int(epoch), int(start_offset)))
        except (CorruptCheckpoint, ValueError) as fault:
            logger.warning("%s; leader epochs are taken from the log", fault)
            entries.clear()
        return cls(directory, disk, entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at an offset; older or known epochs change nothing."""
        if epoch <= self.latest:
            return
        self.entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch
        self.save()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to the given one, and the offset where it ended."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        known = UNDEFINED_EPOCH
        for entry in self.entries:
            if entry.epoch > epoch:
                # Asked for an epoch before the first one kept: all that is known is where the first begins.
                return (epoch if known == UNDEFINED_EPOCH else known), entry.start_offset
            known = entry.epoch
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote an offset, -1 where unknown."""
        found = UNDEFINED_EPOCH
        for entry in self.entries:
            if entry.start_offset > offset:
                break
            found = entry.epoch
        return found

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or past the log's end."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the log's start; the one that spans it begins there."""
        spanning = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if not spanning or spanning == [EpochStart(spanning[0].epoch, start_offset)]:
            return
        kept = [entry for entry in self.entries if entry.start_offset > start_offset]
        self._replace([EpochStart(spanning[-1].epoch, start_offset), *kept])

    def clear(self) -> None:
        """Forget every epoch."""
        self._replace([])

    def _replace(self, entries: list[EpochStart]) -> None:
        self.entries = entries
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self.save()

    def save(self) -> None:
        """Write the checkpoint; a failure costs nothing that the batches do not tell again."""
        try:
            write_checkpoint(self._path, self.entries, self._disk, durable=False)
        except OSError as failure:
            logger.warning("%s: cannot write: %s", self._path, failure)
