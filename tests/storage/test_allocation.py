"""Blocks that a growing segment has allocated ahead of its appends, and who gives them back."""

import os
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage.log import Log

from .conftest import MakeBatch, OpenLog

BATCH_BYTES = 256 * 1024
# Enough to have outgrown what a small segment is spared, and to end within what was allocated last.
BATCHES = 11


@pytest.fixture(autouse=True)
def _can_allocate(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    path.touch()
    with Disk().open_for_append(path) as file:
        Disk().allocate(file.fileno(), 0, 1 << 20)
        if not os.fstat(file.fileno()).st_blocks:
            pytest.skip("this file system does not allocate ahead")


def surplus(path: Path) -> int:
    """Bytes on the disk beyond the file's end."""
    status = path.stat()
    return status.st_blocks * 512 - status.st_size


def fill(log: Log, make_batch: MakeBatch, batches: int = BATCHES) -> Path:
    for _ in range(batches):
        log.append(make_batch(1, BATCH_BYTES), 0)
    return log.segments[-1].path(".log")


def test_a_growing_segment_has_blocks_ahead_and_its_own_size(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    path = fill(log, make_batch)
    assert surplus(path) > BATCH_BYTES
    assert path.stat().st_size == log.size
    allocated = path.stat().st_blocks
    log.append(make_batch(1, BATCH_BYTES), 0)
    assert path.stat().st_blocks == allocated


def test_a_small_segment_has_only_what_it_needs(open_log: OpenLog, make_batch: MakeBatch) -> None:
    path = fill(open_log(), make_batch, batches=2)
    assert surplus(path) < BATCH_BYTES


def test_a_sealed_segment_gives_back_what_it_did_not_need(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    path = fill(log, make_batch)
    log.roll()
    assert surplus(path) < BATCH_BYTES
    assert path.stat().st_size == log.size


def test_an_idle_segment_gives_it_back_and_goes_on_later(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    path = fill(log, make_batch)
    log.release_idle_files()
    assert surplus(path) > BATCH_BYTES, "it was used just now"
    log.release_idle_files()
    assert surplus(path) < BATCH_BYTES
    fill(log, make_batch)
    assert surplus(path) > BATCH_BYTES
    assert path.stat().st_size == log.size


def test_a_closed_log_gives_it_back(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    path = fill(log, make_batch)
    log.close()
    assert surplus(path) < BATCH_BYTES


def test_what_a_killed_broker_had_allocated_is_given_back_at_the_next_start(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    path = fill(log, make_batch)
    log.abandon()
    assert surplus(path) > BATCH_BYTES
    again = open_log(clean=False)
    assert surplus(path) < BATCH_BYTES
    assert again.log_end_offset == BATCHES
    assert again.read(0, 1 << 30, min_one_batch=True) is not None
    assert again.size == path.stat().st_size


def test_a_roll_by_size_leaves_no_surplus_behind(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(LogConfig(segment_bytes=3 << 20))
    fill(log, make_batch, batches=40)
    assert len(log.segments) == 4
    assert all(surplus(segment.path(".log")) < BATCH_BYTES for segment in log.segments[:-1])


def test_a_preallocated_segment_has_all_its_space_from_the_start(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log(LogConfig(segment_bytes=8 << 20, preallocate=True))
    path = log.segments[0].path(".log")
    assert path.stat().st_size == 0
    assert surplus(path) >= 8 << 20
    log.append(make_batch(), 0)
    log.release_idle_files()
    log.release_idle_files()
    assert surplus(path) > 7 << 20, "it keeps what was asked for, however idle"
    log.roll()
    assert surplus(path) < BATCH_BYTES
    assert surplus(log.segments[1].path(".log")) >= 8 << 20
