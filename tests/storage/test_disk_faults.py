"""Full and failing disks: the log stays valid, and goes on when the disk does."""

import errno
import os

import pytest

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.wire.records import check_batch, iterate_batches


def stored_offsets(log):
    return [
        check_batch(batch).base_offset
        for segment in log.segments
        for _, batch in iterate_batches(segment.path(".log").read_bytes())
    ]


def fails(action):
    with pytest.raises(KafkaError) as raised:
        action()
    assert raised.value.error is Error.KAFKA_STORAGE_ERROR
    return raised.value.message


def test_a_disk_that_fills_up_at_any_byte_leaves_a_valid_log(open_log, make_batch, disk):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    size = log.segments[0].path(".log").stat().st_size
    for room in range(len(make_batch())):
        disk.fill(room)
        assert "No space left" in fails(lambda: log.append(make_batch(), leader_epoch=0))
        assert log.log_end_offset == 1
        assert log.segments[0].path(".log").stat().st_size == size == log.size
    disk.free()
    assert log.append(make_batch(), leader_epoch=0).base_offset == 1
    assert stored_offsets(log) == [0, 1]


def test_a_full_disk_still_serves_readers(open_log, make_batch, disk, caplog):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    disk.fill()
    fails(lambda: log.append(make_batch(), leader_epoch=0))
    assert log.read(0, 1000, min_one_batch=True) is not None
    assert "No space left" in caplog.text


def test_a_torn_tail_that_cannot_be_cut_at_once_is_cut_before_the_next_append(
    open_log, make_batch, disk, monkeypatch
):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    disk.fill(20)
    with monkeypatch.context() as patch:

        def broken(*_):
            raise OSError(errno.EIO, "broken")

        patch.setattr(type(disk), "truncate", broken)
        fails(lambda: log.append(make_batch(), leader_epoch=0))
        disk.free()
        fails(lambda: log.append(make_batch(), leader_epoch=0))
    assert log.append(make_batch(), leader_epoch=0).base_offset == 1
    assert stored_offsets(log) == [0, 1]


def test_a_roll_that_fails_changes_nothing(open_log, make_batch, disk, monkeypatch):
    log = open_log(LogConfig(segment_bytes=len(make_batch())))
    log.append(make_batch(), leader_epoch=0)
    with monkeypatch.context() as patch:

        def exhausted(*_, **__):
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(type(disk), "open_for_append", exhausted)
        fails(lambda: log.append(make_batch(), leader_epoch=0))
    assert len(log.segments) == 1
    assert log.append(make_batch(), leader_epoch=0).base_offset == 1
    assert len(log.segments) == 2


def test_a_roll_on_a_full_disk_costs_only_what_can_be_rebuilt(open_log, make_batch, disk, caplog):
    config = LogConfig(segment_bytes=3 * len(make_batch()), index_interval_bytes=1)
    log = open_log(config)
    for _ in range(3):
        log.append(make_batch(), leader_epoch=0)
    disk.fill()
    fails(lambda: log.append(make_batch(), leader_epoch=0))
    assert "cannot write an index" in caplog.text
    disk.free()
    assert log.append(make_batch(), leader_epoch=0).base_offset == 3
    log.close()
    log = open_log(config, clean=True)
    log._reader.forget_positions()
    assert log.read(2, 1, min_one_batch=True) is not None
    assert stored_offsets(log) == [0, 1, 2, 3]


def test_an_index_that_cannot_be_written_does_not_stop_appends(
    open_log, make_batch, disk, monkeypatch, caplog
):
    monkeypatch.setattr("millrace.storage.indexes._MAX_BUFFERED_BYTES", 16)
    log = open_log(LogConfig(index_interval_bytes=0))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(disk), "write_at", full)
        for _ in range(10):
            log.append(make_batch(), leader_epoch=0)
    assert "cannot write the index" in caplog.text
    log._reader.forget_positions()
    assert log.read(9, 1, min_one_batch=True) is not None
    log.close()
    assert len(log.segments[0].offset_index) == 9


def test_after_a_failed_fsync_no_later_one_is_trusted(open_log, make_batch, disk):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.flush()
    log.append(make_batch(), leader_epoch=0)
    disk.fail_next_fsync()
    fails(log.flush)
    fails(log.flush)
    assert log.recovery_point == 1


def test_after_a_failed_fsync_a_log_is_read_but_not_written(open_log, make_batch, disk):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    disk.fail_next_fsync()
    fails(log.flush)
    with pytest.raises(KafkaError, match=r"events-0 is read-only: .* \(Input/output error\).* restart"):
        log.append(make_batch(), leader_epoch=0)
    assert log.log_end_offset == 1
    assert log.read(0, 1, min_one_batch=True) is not None


def test_what_the_kernel_could_not_write_is_forgotten_before_a_recovery_looks(
    open_log, make_batch, disk, monkeypatch
):
    """The disk is one on which the last batch has not arrived, whatever reading the file still shows."""
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.flush()
    on_disk = log.segments[0].size
    log.append(make_batch(), leader_epoch=0)
    disk.fail_next_fsync()
    fails(log.flush)
    monkeypatch.setattr(type(disk), "forget_pages", lambda _, fd: os.ftruncate(fd, on_disk))
    fails(log.close)
    log = open_log(recovery_point=1)
    assert log.log_end_offset == 1
    log.append(make_batch(), leader_epoch=0)
    log.close()


def test_a_file_that_cannot_be_opened_for_a_flush_is_tried_again(open_log, make_batch, disk, monkeypatch):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.roll()

    def exhausted(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(type(disk), "open_for_reading", exhausted)
        fails(log.flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 1


def test_an_append_to_a_reopened_log_fails_before_it_writes(open_log, make_batch, disk, monkeypatch):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.close()
    log = open_log(clean=True)
    size = log.segments[0].path(".log").stat().st_size

    def exhausted(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    for function in ("open_for_append", "read_at"):
        with monkeypatch.context() as patch:
            patch.setattr(type(disk), function, exhausted)
            fails(lambda: log.append(make_batch(), leader_epoch=0))
        log.abandon()
    assert log.segments[0].path(".log").stat().st_size == size
    assert log.append(make_batch(), leader_epoch=0).base_offset == 1
    assert stored_offsets(log) == [0, 1]


def test_a_file_that_cannot_be_allocated_for_does_no_harm(tmp_path):
    path = tmp_path / "read-only"
    path.touch()
    with Disk().open_for_reading(path) as file:
        Disk().allocate(file.fileno(), 1 << 20)
    assert path.stat().st_blocks == 0
