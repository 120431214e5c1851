"""Partitions on their data directories: the checkpoints, and when they are written."""

from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.replication.partition import Partition

from ..node import Node, OpenNode
from ..records import batch

ME, OTHER = 0, 7


class Hosted:
    """A broker with one partition, which has ten flushed records."""

    def __init__(self, directory: Path) -> None:
        self.node = Node(directory)
        self.open: OpenNode = self.node.open()
        self.open.create_topic("orders", 1)
        for _ in range(10):
            self.partition.append_as_leader(memoryview(batch(b"v")))
        self.partition.log.flush()
        self.checkpoint()

    @property
    def partition(self) -> Partition:
        found = self.open.partitions.find("orders", 0)
        assert found is not None
        return found

    def checkpoint(self) -> None:
        self.open.partitions.update_checkpoints()
        self.open.partitions.log_dirs[0].write_checkpoints()

    def restart(self) -> None:
        self.open = self.node.reopen()


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    return Hosted(tmp_path / "data")


def recovery_points(hosted: Hosted) -> str:
    return (hosted.node.directories[0] / "recovery-point-offset-checkpoint").read_text()


def test_the_recovery_point_goes_back_before_the_log_is_truncated(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.partition.become_follower(1, OTHER)
    cut = Partition.truncate_to
    written: list[str] = []

    def truncate_to(partition: Partition, offset: int) -> list[Path]:
        written.append(recovery_points(hosted))
        return cut(partition, offset)

    monkeypatch.setattr(Partition, "truncate_to", truncate_to)
    hosted.open.partitions.truncate(hosted.partition, 4)
    assert written == ["0\n1\norders 0 4\n"]
    assert hosted.partition.log.log_end_offset == 4
    assert not list(hosted.partition.log.directory.glob("*.deleted"))


def test_truncating_unflushed_records_writes_no_checkpoint(hosted: Hosted) -> None:
    hosted.partition.append_as_leader(memoryview(batch(b"v")))
    hosted.partition.become_follower(1, OTHER)
    hosted.open.partitions.truncate(hosted.partition, 10)
    assert recovery_points(hosted) == "0\n1\norders 0 10\n"


def test_a_replicated_partition_keeps_its_high_watermark_over_restarts(hosted: Hosted) -> None:
    hosted.partition.become_leader(0, (ME, OTHER), (ME, OTHER), node_id=ME)
    hosted.partition.append_as_leader(memoryview(batch(b"not committed yet")))
    hosted.checkpoint()
    hosted.restart()
    assert hosted.partition.high_watermark == 11, "the metadata says that there is one replica"
    hosted.restart()
    log_dir = hosted.open.partitions.log_dirs[0]
    assert log_dir.high_watermarks.get("orders", 0) == 10
    hosted.checkpoint()
    assert log_dir.high_watermarks.get("orders", 0) == 0, "a partition with one replica needs none"


def test_a_follower_opens_its_log_with_the_high_watermark_of_the_checkpoint(hosted: Hosted) -> None:
    hosted.partition.become_leader(0, (ME, OTHER), (ME, OTHER), node_id=ME)
    hosted.partition.append_as_leader(memoryview(batch(b"not committed yet")))
    hosted.checkpoint()
    topic_id = hosted.partition.topic_id
    hosted.restart()
    partitions = hosted.open.partitions
    hosted.partition.log.abandon()
    log = partitions.opening("orders", topic_id, 0, LogConfig())()
    partition = partitions.opened("orders", topic_id, 0, log)
    partition.become_follower(1, OTHER)
    assert (partition.high_watermark, partition.log.log_end_offset) == (10, 11)
