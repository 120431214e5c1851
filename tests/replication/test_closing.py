"""Closing every log: many at once, and the mark of a clean stop only after all of them."""

import errno
import os
import threading
from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage.log_dir import CLEAN_SHUTDOWN_FILE

from ..node import Node, OpenNode
from ..records import batch

PARTITIONS = 8


class WatchedDisk(Disk):
    """A disk that notes which files are forced to disk or replaced, and fails for one of them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.failing: str | None = None
        self.meeting: threading.Barrier | None = None
        self._lock = threading.Lock()

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.suffix == ".log":
            if self.meeting is not None:
                self.meeting.wait(20)
            if path.parent.name == self.failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(fd)
        with self._lock:
            self.events.append(path.parent.name if path.suffix == ".log" else path.name)

    def replace(self, path: Path, content: bytes, *, durable: bool = True) -> None:
        super().replace(path, content, durable=durable)
        self.events.append(path.name)


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def node(tmp_path: Path, disk: WatchedDisk) -> Node:
    return Node(tmp_path / "data", disk=disk)


@pytest.fixture
def opened(node: Node, disk: WatchedDisk) -> OpenNode:
    """A topic with an unflushed record in each of its partitions."""
    opened = node.open()
    opened.create_topic("orders", PARTITIONS)
    for partition in opened.partitions:
        partition.append_as_leader(memoryview(batch(b"value")))
    disk.events.clear()
    return opened


def logs(*left_out: int) -> set[str]:
    return {f"orders-{index}" for index in range(PARTITIONS) if index not in left_out}


def mark(node: Node) -> Path:
    return node.directories[0] / CLEAN_SHUTDOWN_FILE


def test_logs_are_forced_to_disk_at_the_same_time(opened: OpenNode, node: Node, disk: WatchedDisk) -> None:
    disk.meeting = threading.Barrier(PARTITIONS)
    assert opened.partitions.close()
    assert mark(node).exists()


def test_the_mark_is_written_after_every_log(opened: OpenNode, node: Node, disk: WatchedDisk) -> None:
    opened.partitions.close()
    position = disk.events.index(CLEAN_SHUTDOWN_FILE)
    assert logs() <= set(disk.events[:position])
    assert logs().isdisjoint(disk.events[position:])
    reopened = node.open()
    assert reopened.partitions.log_dirs[0].clean_shutdown
    assert [partition.log.log_end_offset for partition in reopened.partitions] == [1] * PARTITIONS
    node.kill()


def test_a_log_that_cannot_be_flushed_costs_the_mark_and_no_other_log(
    opened: OpenNode, node: Node, disk: WatchedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.failing = "orders-3"
    assert not opened.partitions.close()
    assert not mark(node).exists()
    assert "cannot close the log of orders-3" in caplog.text
    assert logs(3) <= set(disk.events)
    disk.failing = None
    reopened = node.open()
    points = {partition.index: partition.log.recovery_point for partition in reopened.partitions}
    assert points == {index: int(index != 3) for index in range(PARTITIONS)}
    node.kill()
