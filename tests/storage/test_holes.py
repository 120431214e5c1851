"""Offsets that are missing because segments were deleted, not because of retention or compaction."""

import logging
from pathlib import Path
from typing import Any

import pytest

from millrace.config import LogConfig
from millrace.storage import holes
from millrace.storage.holes import Hole
from millrace.storage.log import Log

from .conftest import MakeBatch, OpenLog

SEGMENTS = 5
PER_SEGMENT = 3


@pytest.fixture
def config(make_batch: MakeBatch) -> LogConfig:
    """One batch per segment."""
    return LogConfig(segment_bytes=len(make_batch(PER_SEGMENT)))


@pytest.fixture
def log(open_log: OpenLog, make_batch: MakeBatch, config: LogConfig) -> Log:
    log = open_log(config)
    for _ in range(SEGMENTS):
        log.append(make_batch(PER_SEGMENT), leader_epoch=0)
    return log


def segment(log: Log, number: int) -> Path:
    return log.directory / f"{number * PER_SEGMENT:020d}.log"


def between(log: Log) -> list[Hole]:
    return list(holes.between_segments(log.directory))


@pytest.mark.parametrize("with_index", [True, False])
def test_a_deleted_sealed_segment_leaves_a_hole(log: Log, with_index: bool) -> None:
    log.close()
    assert between(log) == []
    for number in (1, 3):
        for path in log.directory.glob(segment(log, number).stem + ("*" if with_index else ".log")):
            path.unlink()
    assert between(log) == [Hole(3, 6), Hole(9, 12)]


def test_deleted_neighbours_leave_one_hole(log: Log) -> None:
    log.close()
    segment(log, 1).unlink()
    segment(log, 2).unlink()
    assert between(log) == [Hole(3, 9)]


def test_what_is_before_the_start_of_the_log_is_not_missed(log: Log) -> None:
    log.close()
    segment(log, 1).unlink()
    segment(log, 3).unlink()
    assert list(holes.between_segments(log.directory, log_start_offset=10)) == [Hole(10, 12)]


def test_looking_for_holes_neither_trusts_nor_changes_wrong_indexes(log: Log) -> None:
    log.close()
    index = segment(log, 1).with_suffix(".index")
    index.write_bytes(b"\xab" * 16)
    segment(log, 3).with_suffix(".index").unlink()
    assert between(log) == []
    assert index.read_bytes() == b"\xab" * 16
    assert not segment(log, 3).with_suffix(".index").exists()


def test_a_damaged_segment_is_not_taken_for_a_hole(log: Log) -> None:
    log.close()
    segment(log, 1).write_bytes(b"\xff" * 100)
    assert between(log) == []


REOPENED = pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])


def reopen(open_log: OpenLog, log: Log, *, clean: bool, **options: Any) -> Log:
    log.flush()
    recovery_point = log.recovery_point
    if clean:
        log.close()
    else:
        log.abandon()
    return open_log(log.config, clean=clean, recovery_point=recovery_point, **options)


@REOPENED
def test_an_intact_log_is_opened_without_a_word(
    open_log: OpenLog, log: Log, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reopen(open_log, log, clean=clean)
    assert "missing" not in caplog.text


@REOPENED
def test_a_deleted_last_segment_is_reported_with_its_offsets(
    open_log: OpenLog, log: Log, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.flush()
    log.abandon()
    segment(log, 4).unlink()
    assert open_log(log.config, clean=clean, recovery_point=15).log_end_offset == 12
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{log.directory}: offsets 12 to 14 are missing" in line.getMessage()
    assert "new records are given these offsets again" in line.getMessage()


def test_a_deleted_last_segment_that_was_never_flushed_is_known_by_its_index(
    open_log: OpenLog, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.roll()
    log.abandon()
    segment(log, 4).unlink()
    segment(log, 5).unlink()
    assert open_log(log.config).log_end_offset == 12
    assert "offsets 12 to 12 are missing" in caplog.text


def test_an_empty_last_segment_is_not_missed(
    open_log: OpenLog, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.roll()
    log.close()
    segment(log, 5).unlink()
    assert open_log(log.config, clean=True, recovery_point=15).log_end_offset == 15
    assert "missing" not in caplog.text


@REOPENED
def test_a_log_without_any_segment_is_reported(
    open_log: OpenLog, log: Log, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.flush()
    log.abandon()
    for path in log.directory.glob("*.log"):
        path.unlink()
    open_log(log.config, clean=clean, recovery_point=15, log_start_offset=4)
    assert "offsets 4 to 14 are missing" in caplog.text


@REOPENED
def test_deleted_first_segments_are_reported_once(
    open_log: OpenLog, log: Log, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.flush()
    log.abandon()
    segment(log, 0).unlink()
    segment(log, 1).unlink()
    again = open_log(log.config, clean=clean, recovery_point=15)
    assert "offsets 0 to 5 are missing" in caplog.text
    assert "the log now starts at offset 6" in caplog.text
    caplog.clear()
    reopen(open_log, again, clean=clean, log_start_offset=again.log_start_offset)
    assert "missing" not in caplog.text


@REOPENED
def test_what_retention_removed_is_not_missed_even_without_its_checkpoint(
    open_log: OpenLog, log: Log, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.delete_records_before(7)
    for path in log.apply_retention():
        path.unlink()
    assert log.segments[0].base_offset == 6
    reopen(open_log, log, clean=clean, log_start_offset=0)
    assert "missing" not in caplog.text
