"""Swapping compacted segments in: stopped after any step, a log has its old content or its new."""

import itertools
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage import swap
from millrace.storage.compaction import Compaction, Job, Source, read_batches
from millrace.wire.records import Record, build_batch, iterate_records

OLD = [(offset, b"%d" % (offset % 3)) for offset in range(9)]
NEW = [(6, b"0"), (7, b"1"), (8, b"2")]
INDEXES = (".index", ".timeindex")


class PowerCut(Exception):
    """The moment at which the machine stops."""


@dataclass
class StoppingDisk(Disk):
    """A disk that stops for good after some steps."""

    steps: int
    done: list[str] = field(default_factory=list)

    def _step(self, name: str) -> None:
        if len(self.done) == self.steps:
            raise PowerCut
        self.done.append(name)

    def rename(self, source: Path, target: Path) -> None:
        self._step(f"{source.name} -> {target.name}")
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step(f"remove {path.name}")
        super().remove(path)

    def fsync_directory(self, directory: Path) -> None:
        self._step("fsync")
        super().fsync_directory(directory)


def name_of(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def content(directory: Path) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.key)
        for path in sorted(directory.glob("*.log"))
        for _, batch in read_batches(path, path.stat().st_size)
        for record in iterate_records(batch)
    ]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Three segments of three records, and the files of the one that is to replace them."""
    directory = tmp_path / "original-0"
    directory.mkdir()
    for base in (0, 3, 6):
        records = [Record(offset, 1, key, b"value") for offset, key in OLD[base : base + 3]]
        (directory / name_of(base, ".log")).write_bytes(build_batch(records))
        for suffix in (*INDEXES, ".snapshot"):
            (directory / name_of(base, suffix)).write_bytes(b"old")
    sources = [Source(base, (directory / name_of(base, ".log")).stat().st_size, 0, 0) for base in (0, 3, 6)]
    job = Job(str(directory), sources, 0, 9, 1 << 20, 1 << 20, 4096, 0, 100, 1e300, 0, [])
    assert [replacement.replaces for replacement in Compaction(job).run()] == [[0, 3, 6]]
    return directory


def exchange(directory: Path, disk: Disk) -> None:
    swap.stage(directory, 0, disk)
    retired = swap.put_in_place(directory, 0, [0, 3, 6], disk)
    disk.fsync_directory(directory)
    for path in retired:
        disk.remove(path)


def leftovers(directory: Path) -> list[str]:
    suffixes = (".cleaned", ".swap", ".deleted")
    return [path.name for path in directory.iterdir() if path.name.endswith(suffixes)]


def test_an_undisturbed_swap_leaves_only_the_new_segment(original: Path) -> None:
    exchange(original, Disk())
    assert content(original) == NEW
    expected = {name_of(0, suffix) for suffix in (".log", *INDEXES, ".snapshot")}
    assert {path.name for path in original.iterdir()} == expected
    assert (original / name_of(0, ".timeindex")).read_bytes() != b"old"


def test_a_crash_after_any_step_leaves_the_old_or_the_new(original: Path, tmp_path: Path) -> None:
    outcomes = []
    for steps in itertools.count():
        directory = tmp_path / f"topic-{steps}"
        shutil.copytree(original, directory)
        disk = StoppingDisk(steps)
        try:
            exchange(directory, disk)
        except PowerCut:
            swap.recover(directory, Disk())
            outcomes.append(content(directory))
            assert not leftovers(directory)
            has_new_index = (directory / name_of(0, ".timeindex")).read_bytes() != b"old"
            assert has_new_index == (outcomes[-1] == NEW), disk.done
        else:
            break
    assert len(outcomes) > 15
    assert outcomes == [OLD] * 3 + [NEW] * (len(outcomes) - 3)


def test_recovery_itself_may_be_stopped_anywhere(original: Path, tmp_path: Path) -> None:
    for steps, recovery_steps in itertools.product(range(20), range(20)):
        directory = tmp_path / f"topic-{steps}-{recovery_steps}"
        shutil.copytree(original, directory)
        with pytest.raises(PowerCut):
            exchange(directory, StoppingDisk(steps))
        stopped = StoppingDisk(recovery_steps)
        with suppress(PowerCut):
            swap.recover(directory, stopped)
        swap.recover(directory, Disk())
        assert content(directory) == (OLD if steps < 3 else NEW), stopped.done
        assert not leftovers(directory)


def test_a_swap_can_be_called_off_before_the_old_files_move(original: Path) -> None:
    swap.stage(original, 0, Disk())
    swap.unstage(original, 0, Disk())
    assert content(original) == OLD
    assert not leftovers(original)


def test_recovery_of_an_undisturbed_directory_touches_nothing(original: Path) -> None:
    swap.recover(original, Disk())
    swap.recover(original, StoppingDisk(0))
    assert content(original) == OLD


class FailingDisk(Disk):
    """A disk on which the n-th rename fails."""

    def __init__(self, fails_at: int) -> None:
        self.renames_left = fails_at

    def rename(self, source: Path, target: Path) -> None:
        self.renames_left -= 1
        if self.renames_left == 0:
            raise OSError("the disk is failing")
        super().rename(source, target)


def test_an_exchange_that_fails_puts_the_old_files_back(original: Path, tmp_path: Path) -> None:
    swap.stage(original, 0, Disk())
    for fails_at in range(1, 15):
        directory = tmp_path / f"topic-{fails_at}"
        shutil.copytree(original, directory)
        with pytest.raises(OSError, match="failing"):
            swap.put_in_place(directory, 0, [0, 3, 6], FailingDisk(fails_at))
        swap.unstage(directory, 0, Disk())
        assert content(directory) == OLD
        assert (directory / name_of(0, ".timeindex")).read_bytes() == b"old"
        assert not leftovers(directory)
