"""Putting a cleaned segment in the place of those it was made from; a crash leaves the old or the new, whole.

1. stage: `.cleaned` files, already synced, become `.swap`, the log last. From then on recovery goes forward.
2. put_in_place: the old files become `.deleted`, then the `.swap` files get their real names, the log last.
3. Some time later the `.deleted` files are removed.

recover() needs no list of what a `.log.swap` replaces: a cleaned segment keeps its last batch, so it spans
the very offsets of its sources, and every other segment that starts within them is one of those.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.cleaned_segment import CLEANED_SUFFIX
from millrace.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from millrace.wire.records import HEADER_BYTES, read_header

logger = logging.getLogger(__name__)

SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
SNAPSHOT_SUFFIX = ".snapshot"

# The log last: while `.log.swap` exists, its indexes are complete under one name or the other.
_SWAPPED = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LOG_SUFFIX)


def stage(directory: Path, base_offset: int, disk: Disk) -> None:
    """Decide for the cleaned segment; slow, for it waits for the disk."""
    for suffix in _SWAPPED:
        cleaned = _path(directory, base_offset, suffix + CLEANED_SUFFIX)
        if cleaned.exists():
            disk.rename(cleaned, _path(directory, base_offset, suffix + SWAP_SUFFIX))
    disk.fsync_directory(directory)


def unstage(directory: Path, base_offset: int, disk: Disk) -> None:
    """Take the decision back, as long as the old files are in place."""
    for suffix in reversed(_SWAPPED):
        disk.remove(_path(directory, base_offset, suffix + SWAP_SUFFIX))


def put_in_place(directory: Path, base_offset: int, replaced: Sequence[int], disk: Disk) -> list[Path]:
    """Exchange the files and return the old ones, for removal later; an OSError leaves them in place."""
    retired: list[Path] = []
    try:
        for old in _files_of(directory, base_offset, replaced):
            disk.rename(old, old.with_name(old.name + DELETED_SUFFIX))
            retired.append(old.with_name(old.name + DELETED_SUFFIX))
        _unsuffix(directory, base_offset, disk)
    except OSError:
        for path in reversed(retired):
            disk.rename(path, path.with_suffix(""))
        raise
    return retired


def _files_of(directory: Path, base_offset: int, replaced: Sequence[int]) -> Iterator[Path]:
    for old_base_offset in replaced:
        # The first segment's snapshot serves the new one, which starts at the same offset.
        suffixes = _SWAPPED if old_base_offset == base_offset else (*_SWAPPED, SNAPSHOT_SUFFIX)
        for suffix in suffixes:
            path = _path(directory, old_base_offset, suffix)
            if path.exists():
                yield path


def recover(directory: Path, disk: Disk) -> None:
    """Bring a directory that a crash left in the middle of a swap to the old state or the new."""
    names = sorted(path.name for path in directory.iterdir())
    _remove_all(directory, names, CLEANED_SUFFIX, disk)
    logs = [_base_offset(name) for name in names if name.endswith(LOG_SUFFIX)]
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _finish(directory, _base_offset(name), logs, disk)
    # Indexes whose log is not there yet were never decided for.
    _remove_all(directory, names, SWAP_SUFFIX, disk)
    _remove_all(directory, names, DELETED_SUFFIX, disk)


def _finish(directory: Path, base_offset: int, logs: Sequence[int], disk: Disk) -> None:
    end_offset = _end_offset(_path(directory, base_offset, LOG_SUFFIX + SWAP_SUFFIX))
    logger.info("%s: finishing the swap of the compacted segment %d", directory, base_offset)
    for old_base_offset in logs:
        if base_offset < old_base_offset < end_offset:
            for suffix in (SNAPSHOT_SUFFIX, *_SWAPPED):
                disk.remove(_path(directory, old_base_offset, suffix))
    _unsuffix(directory, base_offset, disk)
    disk.fsync_directory(directory)


def _remove_all(directory: Path, names: Sequence[str], suffix: str, disk: Disk) -> None:
    for name in names:
        if name.endswith(suffix):
            disk.remove(directory / name)


def _unsuffix(directory: Path, base_offset: int, disk: Disk) -> None:
    for suffix in _SWAPPED:
        swap = _path(directory, base_offset, suffix + SWAP_SUFFIX)
        if swap.exists():
            disk.rename(swap, _path(directory, base_offset, suffix))


def _end_offset(log: Path) -> int:
    """The offset that follows the last batch of a file."""
    end_offset = position = 0
    with log.open("rb", buffering=0) as file:
        while len(content := os.pread(file.fileno(), HEADER_BYTES, position)) == HEADER_BYTES:
            header = read_header(content)
            end_offset = header.next_offset
            position += header.size
    return end_offset


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def _path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"
