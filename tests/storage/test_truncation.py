"""Cutting a log back: batches, indexes, producers, transactions and epochs end where the log does."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.disk import Bytes, Disk
from millrace.errors import Error, KafkaError
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.wire.records import Record, build_batch

from ..transactional import TransactionalProducer, read_committed
from .conftest import MakeBatch, OpenLog
from .log_state import batches_of, state_of

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


def offsets_of(log: Log) -> list[int]:
    return [header.base_offset for header, _ in batches_of(log)]


@pytest.fixture
def log(open_log: OpenLog, make_batch: MakeBatch) -> Log:
    """Twenty batches of two records in several segments, two batches in each leader epoch."""
    log = open_log(SMALL)
    for number in range(20):
        log.append(make_batch(2), number // 2)
    assert len(log.segments) > 3
    return log


def test_batches_from_the_offset_on_are_gone(log: Log, make_batch: MakeBatch) -> None:
    log.truncate_to(14)
    assert log.log_end_offset == 14
    assert offsets_of(log) == list(range(0, 14, 2))
    assert log.append(make_batch(1), 20).base_offset == 14
    assert offsets_of(log) == list(range(0, 16, 2))


def test_a_batch_that_holds_the_offset_goes_whole(log: Log) -> None:
    log.truncate_to(15)
    assert log.log_end_offset == 14


def test_nothing_is_cut_from_the_logs_end_on(log: Log) -> None:
    before = state_of(log)
    assert log.truncate_to(40) == log.truncate_to(41) == []
    assert log.truncations == 0
    assert state_of(log) == before


@pytest.mark.parametrize("offset", range(0, 41, 2))
def test_every_cut_leaves_the_log_that_was_there_before(
    log: Log, open_log: OpenLog, make_batch: MakeBatch, offset: int
) -> None:
    shorter = open_log(SMALL, name="shorter-0")
    for number in range(offset // 2):
        shorter.append(make_batch(2), number // 2)
    log.truncate_to(offset)
    assert state_of(log) == state_of(shorter)
    log.abandon()
    assert state_of(open_log(SMALL)) == state_of(shorter)


def test_segments_past_the_offset_are_set_aside_and_readers_keep_their_files(log: Log) -> None:
    piece = log.read(30, 10_000, min_one_batch=True)
    assert piece is not None
    content = piece.read()
    retired = log.truncate_to(2)
    assert len(log.segments) == 1
    assert {path.suffix for path in retired} == {".deleted"}
    assert sum(path.name.endswith(".log.deleted") for path in retired) > 2
    for path in retired:
        path.unlink()
    assert piece.read() == content
    assert sorted(path.name for path in log.directory.glob("*.log")) == [f"{0:020d}.log"]


def test_a_cut_before_the_first_segment_starts_over_there(log: Log, make_batch: MakeBatch) -> None:
    log.delete_records_before(30)
    log.apply_retention()
    assert log.segments[0].base_offset > 10
    log.truncate_to(10)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (10, 10, 0)
    assert log.epoch_at(9) == -1
    assert log.append(make_batch(1), 12).base_offset == 10


def test_starting_over_past_the_end_drops_everything(
    log: Log, open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log.append(make_batch(1, producer_id=5, producer_epoch=0, base_sequence=0), 11)
    log.restart_at(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert not log.active_producers()
    assert log.epoch_end_offset(3) == (-1, -1)
    log.append(make_batch(1), 11)
    log.abandon()
    reopened = open_log(SMALL)
    assert (reopened.log_start_offset, offsets_of(reopened)) == (100, [100])


def test_the_start_of_the_log_never_lies_past_its_end(log: Log) -> None:
    log.delete_records_before(7)
    log.truncate_to(7)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


# Producers and transactions


def test_a_producer_continues_from_the_batches_that_are_left(log: Log, make_batch: MakeBatch) -> None:
    producer = {"producer_id": 5, "producer_epoch": 0}
    for number in range(10):
        log.append(make_batch(1, **producer, base_sequence=number), 10)
    log.truncate_to(46)
    assert log.append(make_batch(1, **producer, base_sequence=5), 11).duplicate
    assert log.append(make_batch(1, **producer, base_sequence=2), 11).duplicate
    with pytest.raises(KafkaError) as raised:
        log.append(make_batch(1, **producer, base_sequence=7), 11)
    assert raised.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(make_batch(1, **producer, base_sequence=6), 11).base_offset == 46


def test_a_producer_without_batches_left_is_forgotten(log: Log, make_batch: MakeBatch) -> None:
    log.append(make_batch(1, producer_id=5, producer_epoch=3, base_sequence=9), 10)
    log.truncate_to(40)
    assert not log.active_producers()


def test_a_transaction_is_open_again_without_its_marker(log: Log, clock: ManualClock) -> None:
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    marker = producer.abort()
    assert log.aborted_transactions(0, 100)
    log.truncate_to(marker.base_offset)
    assert log.last_stable_offset == 40
    assert log.aborted_transactions(0, 100) == []
    producer.commit()
    assert read_committed(log)[-1] == (40, b"a")


def test_snapshots_of_the_dropped_part_are_not_used_later(
    log: Log, open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log.append(make_batch(1, producer_id=5, producer_epoch=0, base_sequence=0), 10)
    log.close()
    assert (log.directory / f"{41:020d}.snapshot").exists()
    log = open_log(SMALL, clean=True)
    log.truncate_to(40)
    for _ in range(3):
        log.append(make_batch(1), 11)
    log.abandon()
    assert not open_log(SMALL).active_producers()


# Flushing, compaction, faults


def test_the_recovery_point_follows_the_end_back(log: Log) -> None:
    log.flush()
    assert log.recovery_point == 40
    log.truncate_to(20)
    assert log.recovery_point == 20


def test_a_flush_under_way_says_nothing_of_batches_appended_after_the_cut(
    log: Log, make_batch: MakeBatch
) -> None:
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.truncate_to(20)
    for _ in range(10):
        log.append(make_batch(2), 20)
    flush.complete()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 40


def test_the_high_watermark_does_not_stay_behind_the_end(log: Log) -> None:
    log.set_high_watermark(30)
    log.truncate_to(20)
    assert log.high_watermark == 20


def test_a_log_that_cannot_be_cut_takes_no_more_records(
    log: Log, disk: FaultyDisk, make_batch: MakeBatch
) -> None:
    disk.fail_next_fsync()
    with pytest.raises(KafkaError) as raised:
        log.truncate_to(20)
    assert raised.value.error is Error.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="cannot be truncated"):
        log.append(make_batch(1), 20)


class Killed(BaseException):
    """The process ended here."""


class MortalDisk(Disk):
    """A disk under a process that is killed before one of its changes of a file."""

    __slots__ = ("_left", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self._left: int | None = None

    def die_after(self, steps: int | None) -> None:
        self._left = steps

    def _step(self) -> None:
        if self._left == 0:
            raise Killed
        if self._left is not None:
            self._left -= 1
        self.steps += 1

    def write(self, fd: int, buffers: "list[Bytes] | tuple[Bytes, ...]") -> None:
        self._step()
        super().write(fd, buffers)

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


class Life:
    """A log with everything in it, which is flushed in part, and cut."""

    def __init__(self, directory: Path, disk: Disk, clock: ManualClock) -> None:
        self.log = Log.open(directory, SMALL, clock=clock, disk=disk)
        transactional = [TransactionalProducer(self.log, clock, number) for number in (1, 2)]
        for number in range(10):
            records = [Record(place, clock.now_ms(), b"k", b"v" * 60) for place in range(2)]
            batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=2 * number)
            self.log.append(memoryview(batch), number)
            for producer in transactional:
                producer.send(b"x" * 30)
            transactional[0].end(committed=number % 2 == 0)
            if number % 3 == 2:
                transactional[1].abort()
            clock.advance(1000)
            if number == 7:
                self.log.flush()


@pytest.fixture
def new_life(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[str, Disk], Log]]:
    logs: list[Log] = []

    def make(name: str, disk: Disk) -> Log:
        start_ms = clock.now_ms()
        log = Life(tmp_path / name, disk, clock).log
        clock.advance(start_ms - clock.now_ms())
        logs.append(log)
        return log

    yield make
    for log in logs:
        log.abandon()


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 17, 30])
def test_a_process_killed_at_any_step_of_a_cut_leaves_a_beginning_of_the_log(
    new_life: Callable[[str, Disk], Log], open_log: OpenLog, clock: ManualClock, offset: int
) -> None:
    """Both with the recovery point from before the cut, as it may still be written down, and without any."""
    whole = new_life("whole-0", Disk())
    disk = MortalDisk()
    log = new_life("steps-0", disk)
    disk.steps = 0
    log.truncate_to(offset)
    expected, steps = state_of(log), disk.steps
    assert steps > 3
    copy = open_log(SMALL, name="copy-0")
    beginnings = {0: state_of(copy)}
    for _, batch in batches_of(whole):
        copy.append_as_follower(memoryview(bytes(batch)), leader_epoch=10)
        beginnings[copy.log_end_offset] = state_of(copy)
    for step in range(steps + 1):
        for recovery_point in (0, whole.recovery_point):
            name = f"killed{step}x{recovery_point}-0"
            log = new_life(name, disk)
            disk.die_after(step)
            try:
                log.truncate_to(offset)
            except Killed:
                assert step < steps
            disk.die_after(None)
            log.abandon()
            reopened = open_log(SMALL, name=name, disk=disk, recovery_point=recovery_point)
            assert reopened.log_end_offset >= expected["end"]
            assert state_of(reopened) == beginnings[reopened.log_end_offset]
            reopened.truncate_to(offset)
            assert state_of(reopened) == expected
            reopened.abandon()
            reopened = open_log(SMALL, name=name, disk=disk, recovery_point=recovery_point)
            assert state_of(reopened) == expected
