"""A checkpoint that the loop changes while threads write it."""

import threading
from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage.offset_checkpoint import OffsetCheckpoint, read_offsets
from millrace.testing import FaultyDisk


class GatedDisk(Disk):
    """A disk whose writes wait until they are let through."""

    def __init__(self) -> None:
        self.writes = 0
        self.began, self.released = threading.Event(), threading.Event()

    def replace(self, path: Path, content: bytes, *, durable: bool = True) -> None:
        self.writes += 1
        self.began.set()
        assert self.released.wait(20)
        super().replace(path, content, durable=durable)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_offsets_are_kept_and_zero_is_the_default(path: Path) -> None:
    checkpoint = OffsetCheckpoint(path, Disk())
    checkpoint.replace({("b", 1): 7, ("a", 0): 3, ("c", 0): 0})
    checkpoint.update({("b", 1): 8})
    checkpoint.write()
    assert path.read_text() == "0\n2\na 0 3\nb 1 8\n"
    again = OffsetCheckpoint(path, Disk())
    assert [again.get(topic, index) for topic, index in (("a", 0), ("b", 1), ("c", 0))] == [3, 8, 0]


def test_what_changes_during_a_write_is_written_by_the_next(path: Path) -> None:
    disk = GatedDisk()
    checkpoint = OffsetCheckpoint(path, disk)
    checkpoint.update({("a", 0): 1, ("b", 0): 1})
    first = threading.Thread(target=checkpoint.write)
    first.start()
    assert disk.began.wait(20)
    checkpoint.update({("a", 0): 2})
    checkpoint.forget({("b", 0)})
    others = [threading.Thread(target=checkpoint.write) for _ in range(5)]
    for thread in others:
        thread.start()
    disk.released.set()
    for thread in (first, *others):
        thread.join(20)
    assert read_offsets(path) == {("a", 0): 2}
    assert disk.writes == 2, "waiting callers share one write"


def test_an_unchanged_checkpoint_is_not_written_again(path: Path) -> None:
    checkpoint = OffsetCheckpoint(path, Disk())
    checkpoint.replace({("a", 0): 1})
    checkpoint.write()
    path.unlink()
    checkpoint.replace({("a", 0): 1})
    checkpoint.write()
    assert not path.exists()


def test_a_failed_write_is_repeated(path: Path) -> None:
    disk = FaultyDisk()
    checkpoint = OffsetCheckpoint(path, disk)
    checkpoint.update({("a", 0): 1})
    disk.fail_next_write()
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.write()
    checkpoint.write()
    assert read_offsets(path) == {("a", 0): 1}


def test_a_file_that_must_be_on_disk_is_forced_there_although_it_is_up_to_date(path: Path) -> None:
    disk = FaultyDisk()
    checkpoint = OffsetCheckpoint(path, disk)
    checkpoint.update({("a", 0): 1})
    checkpoint.write()
    assert disk.fsyncs == 0
    checkpoint.write(durable=True)
    assert disk.fsyncs > 0
    forced = disk.fsyncs
    checkpoint.write(durable=True)
    assert disk.fsyncs == forced
