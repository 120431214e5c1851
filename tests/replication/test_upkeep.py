"""A broker's background work, and failures in it."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.clock import Clock
from millrace.errors import KafkaError
from millrace.replication.partition import Partition
from millrace.replication.upkeep import FLUSH_TICK_MS, WRITTEN_BACK_SECONDS, Upkeep
from millrace.storage.cleaner_checkpoint import write_clean_offsets
from millrace.testing import FaultyDisk, ManualClock
from millrace.testing.timers import ManualTimers

from ..node import Node, OpenNode
from ..records import batch

FLUSH_MS = 1000


class Machine:
    """A broker's topics and their upkeep, without its network."""

    def __init__(self, directory: Path) -> None:
        self.disk = FaultyDisk()
        self.clock = ManualClock(Clock().now_ms())
        self.timers = ManualTimers(self.clock)
        self.node = Node(directory, disk=self.disk, clock=self.clock)
        self.in_thread: Callable[[], None] = lambda: None
        self._open()

    def restart(self) -> None:
        """As after kill -9."""
        self.node.kill()
        self._open()

    def _open(self) -> None:
        self.cluster: OpenNode = self.node.open()
        self.upkeep = Upkeep(
            self.cluster.partitions,
            self.cluster.config,
            clock=self.clock,
            timers=self.timers,
            run_in_thread=self._run,
        )

    def _run(self, work: Callable[[], object]) -> asyncio.Future[object]:
        done = asyncio.get_running_loop().create_future()
        self.in_thread()
        try:
            done.set_result(work())
        except OSError as error:
            done.set_exception(error)
        return done

    def dirty(self, topic: str) -> Partition:
        if topic not in self.cluster.topics:
            self.cluster.create_topic(topic, 1)
        partition = self.cluster.partitions.leader(topic, 0)
        partition.append_as_leader(memoryview(batch(b"v" * 5000)))
        return partition

    async def flush_when_due(self) -> None:
        await self.upkeep.flush_due()
        self.clock.advance(FLUSH_MS)
        await self.upkeep.flush_due()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "data")


async def take_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_upkeep_that_is_started_flushes_by_itself(machine: Machine) -> None:
    partition = machine.dirty("orders")
    machine.upkeep.start()
    await take_turns()
    for _ in range(2):
        machine.timers.advance(FLUSH_TICK_MS)
        await take_turns()
    assert partition.log.unflushed_messages
    machine.timers.advance(FLUSH_TICK_MS)
    await take_turns()
    assert not partition.log.unflushed_messages
    await machine.upkeep.stop()
    assert not len(machine.timers)


async def test_records_are_flushed_after_flush_ms(machine: Machine) -> None:
    partition = machine.dirty("orders")
    await machine.upkeep.flush_due()
    machine.clock.advance(FLUSH_MS - 1)
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 1
    machine.clock.advance(1)
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 0


async def test_records_after_a_flush_wait_for_their_own_time(machine: Machine) -> None:
    partition = machine.dirty("orders")
    await machine.flush_when_due()
    assert partition.log.unflushed_messages == 0
    machine.dirty("orders")
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 1
    machine.clock.advance(FLUSH_MS)
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 0


async def test_a_bulk_load_is_flushed_after_it_has_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.replication.upkeep.BULK_BYTES", 4000)
    partition = machine.dirty("orders")
    await machine.upkeep.flush_due()
    for _ in range(3):
        machine.dirty("orders")
        machine.clock.advance(int(WRITTEN_BACK_SECONDS * 1000) - 1)
        await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 4
    machine.clock.advance(int(WRITTEN_BACK_SECONDS * 1000))
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 0


async def test_a_bulk_load_is_flushed_in_time_if_its_topic_sets_flush_ms(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.replication.upkeep.BULK_BYTES", 4000)
    machine.cluster.create_topic("precious", 1, configs={"flush.ms": str(FLUSH_MS - 1)})
    partition = machine.dirty("precious")
    await machine.upkeep.flush_due()
    machine.dirty("precious")
    machine.clock.advance(FLUSH_MS)
    await machine.upkeep.flush_due()
    assert partition.log.unflushed_messages == 0


async def test_a_partition_that_cannot_be_flushed_does_not_stop_other_flushes(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = machine.dirty("broken"), machine.dirty("sound")
    machine.disk.fail_next_fsync()
    await machine.flush_when_due()
    assert broken.log.unflushed_messages == 1
    assert sound.log.unflushed_messages == 0
    assert "cannot flush broken-0" in caplog.text
    caplog.clear()
    await machine.flush_when_due()
    assert broken.log.unflushed_messages == 1, "the kernel may have dropped what it could not write"
    assert not caplog.records


async def test_a_topic_deleted_meanwhile_is_not_flushed_into_its_successor(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    machine.dirty("first")
    for _ in range(3):
        machine.dirty("second")

    def create_again() -> None:
        machine.in_thread = lambda: None
        machine.cluster.delete_topic(machine.cluster.topics["second"])
        machine.cluster.create_topic("second", 1)

    machine.in_thread = create_again
    await machine.flush_when_due()
    assert not caplog.records
    index = machine.node.directories[0] / "second-0" / f"{0:020d}.index"
    assert index.stat().st_size == 0


async def test_a_deleted_active_segment_is_noticed_before_it_is_due_for_a_flush(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    lost, other = machine.dirty("orders"), machine.dirty("payments")
    await machine.upkeep.flush_due()
    assert lost.log.active_file is not None
    lost.log.active_file.path.unlink()
    await machine.upkeep.flush_due()
    with pytest.raises(KafkaError, match="deleted, moved or replaced"):
        machine.dirty("orders")
    assert str(lost.log.directory) in caplog.text
    machine.dirty("payments")
    machine.clock.advance(FLUSH_MS)
    await machine.upkeep.flush_due()
    assert other.log.unflushed_messages == 0
    assert "cannot flush" not in caplog.text


def fill_segments(machine: Machine) -> list[Path]:
    """Three sealed segments and an active one, a record in each."""
    machine.cluster.create_topic("orders", 1, configs={"segment.bytes": "6000"})
    for _ in range(4):
        machine.dirty("orders")
    return sorted(machine.cluster.partitions.leader("orders", 0).log.directory.glob("*.log"))


def report_after_restart(machine: Machine) -> None:
    machine.restart()
    asyncio.run(machine.upkeep.report_holes())


def test_a_deleted_sealed_segment_is_reported(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    _, second, *_ = fill_segments(machine)
    second.unlink()
    report_after_restart(machine)
    assert f"{second.parent}: offsets 1 to 1 are missing" in caplog.text


def test_retention_and_deleted_records_are_not_reported_as_losses(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    fill_segments(machine)
    log = machine.cluster.partitions.leader("orders", 0).log
    log.delete_records_before(2)
    for path in log.apply_retention():
        path.unlink()
    assert len(log.segments) == 2
    report_after_restart(machine)
    assert "missing" not in caplog.text


def test_gaps_that_compaction_may_have_left_are_not_reported_as_losses(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    _, second, *_ = fill_segments(machine)
    second.unlink()
    configs = dict(machine.cluster.topics["orders"].configs)
    machine.cluster.set_topic_configs("orders", configs | {"cleanup.policy": "compact"})
    report_after_restart(machine)
    assert "missing" not in caplog.text


def test_gaps_of_a_formerly_compacted_topic_are_not_reported_as_losses(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    _, second, *_ = fill_segments(machine)
    second.unlink()
    write_clean_offsets(second.parent.parent, {("orders", 0): 3}, machine.disk)
    report_after_restart(machine)
    assert "missing" not in caplog.text
