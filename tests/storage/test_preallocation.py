"""Disk space behind a segment's end: reserved by `preallocate`, or left by an earlier broker."""

import os
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage.log import Log

from .conftest import MakeBatch, OpenLog

BATCH_BYTES = 256 * 1024
BATCHES = 11
SEGMENT_BYTES = 8 << 20


@pytest.fixture(autouse=True)
def _can_allocate(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    path.touch()
    with Disk().open_for_append(path) as file:
        Disk().allocate(file.fileno(), 1 << 20)
        if not os.fstat(file.fileno()).st_blocks:
            pytest.skip("this file system does not allocate blocks behind a file's end")


def surplus(path: Path) -> int:
    """Bytes on the disk beyond the file's end."""
    status = path.stat()
    return status.st_blocks * 512 - status.st_size


def fill(log: Log, make_batch: MakeBatch) -> Path:
    for _ in range(BATCHES):
        log.append(make_batch(1, BATCH_BYTES), 0)
    return log.segments[-1].path(".log")


def test_a_segment_takes_no_more_than_it_needs(open_log: OpenLog, make_batch: MakeBatch) -> None:
    assert surplus(fill(open_log(), make_batch)) < BATCH_BYTES


def test_a_preallocated_segment_has_all_its_space_from_the_start(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log(LogConfig(segment_bytes=SEGMENT_BYTES, preallocate=True))
    path = log.segments[0].path(".log")
    assert path.stat().st_size == 0
    assert surplus(path) >= SEGMENT_BYTES
    log.append(make_batch(), 0)
    log.release_idle_files()
    log.release_idle_files()
    assert surplus(path) > SEGMENT_BYTES - BATCH_BYTES, "an idle segment keeps it"


def test_a_sealed_segment_releases_what_it_did_not_need(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(LogConfig(segment_bytes=SEGMENT_BYTES, preallocate=True))
    path = fill(log, make_batch)
    log.roll()
    assert surplus(path) < BATCH_BYTES
    assert path.stat().st_size == log.size
    assert surplus(log.segments[1].path(".log")) >= SEGMENT_BYTES


def test_a_closed_log_releases_it(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(LogConfig(segment_bytes=SEGMENT_BYTES, preallocate=True))
    path = fill(log, make_batch)
    log.close()
    assert surplus(path) < BATCH_BYTES


def test_recovery_releases_blocks_that_a_killed_broker_had_allocated(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    path = fill(log, make_batch)
    log.abandon()
    with Disk().open_for_append(path) as file:
        Disk().allocate(file.fileno(), log.size + SEGMENT_BYTES)
    assert surplus(path) > BATCH_BYTES
    assert_complete(open_log(clean=False), path, make_batch)
    assert surplus(path) < BATCH_BYTES


@pytest.mark.parametrize("clean", [True, False])
def test_recovery_cuts_the_zeros_of_a_file_that_was_preallocated_in_size(
    open_log: OpenLog, make_batch: MakeBatch, clean: bool
) -> None:
    log = open_log()
    path = fill(log, make_batch)
    if clean:
        log.close()
    else:
        log.abandon()
    # As Apache Kafka preallocates.
    os.truncate(path, SEGMENT_BYTES)
    assert_complete(open_log(clean=clean), path, make_batch)


def assert_complete(log: Log, path: Path, make_batch: MakeBatch) -> None:
    """The log has all its records, no more bytes than they take, and takes more of them."""
    assert log.log_end_offset == BATCHES
    assert log.size == path.stat().st_size
    piece = log.read(0, 1 << 30, min_one_batch=True)
    assert piece is not None and len(piece.read()) == log.size
    assert log.append(make_batch(), 0).base_offset == BATCHES
