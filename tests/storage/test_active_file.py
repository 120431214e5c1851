"""An active segment that is deleted, moved or replaced under a running broker takes no more records."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.log import Log

from .conftest import MakeBatch, OpenLog


def delete(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))


def replace_with_a_copy(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.rename(path)


def delete_the_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


LOSSES = pytest.mark.parametrize("lose", [delete, move_away, replace_with_a_copy, delete_the_directory])


def active_path(log: Log) -> Path:
    assert log.active_file is not None
    return log.active_file.path


def assert_read_only(log: Log, make_batch: MakeBatch) -> None:
    with pytest.raises(KafkaError) as refused:
        log.append(make_batch(), leader_epoch=0)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert "was deleted, moved or replaced under the running broker" in str(refused.value)
    assert str(active_path(log)) in str(refused.value)


@LOSSES
def test_a_flush_into_a_file_without_its_name_fails(
    open_log: OpenLog, make_batch: MakeBatch, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    log.append(make_batch(2), leader_epoch=0)
    log.flush()
    log.append(make_batch(3), leader_epoch=0)
    lose(active_path(log))
    with pytest.raises(KafkaError) as failed:
        log.flush()
    assert failed.value.error is Error.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 2
    assert "Offsets 0 to 4 are only in the file that the broker still has open" in caplog.text
    assert_read_only(log, make_batch)


def test_the_records_stay_readable_and_can_be_saved_as_the_message_says(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append(make_batch(3), leader_epoch=0)
    path = active_path(log)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(KafkaError):
        log.flush()
    log.release_idle_files()
    log.release_idle_files()
    piece = log.read(0, 1 << 20, min_one_batch=True)
    assert piece is not None and piece.read() == content
    assert log.read_only_reason is not None
    command = log.read_only_reason.partition("(")[2].partition(")")[0]
    subprocess.run(command.split(), check=True)
    log.abandon()
    assert open_log().log_end_offset == 3


def test_an_idle_file_without_its_name_is_kept_open(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.flush()
    active_path(log).unlink()
    log.release_idle_files()
    log.release_idle_files()
    assert log.active_file is not None
    assert_read_only(log, make_batch)


def test_a_roll_does_not_leave_a_lost_segment_behind(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(LogConfig(segment_bytes=len(make_batch())))
    log.append(make_batch(), leader_epoch=0)
    active_path(log).unlink()
    assert_read_only(log, make_batch)
    assert log.log_end_offset == 1
    assert len(log.segments) == 1


def test_a_segment_that_was_rolled_and_removed_meanwhile_is_no_loss(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    former = log.active_file
    assert former is not None
    log.roll()
    log.delete_records_before(1)
    for path in log.apply_retention():
        path.unlink()
    assert not former.is_in_place()
    log.report_missing(former)
    log.append(make_batch(), leader_epoch=0)


def test_a_topic_that_was_deleted_meanwhile_is_no_loss(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    former = log.active_file
    assert former is not None
    log.delete()()
    assert not former.is_in_place()
    log.report_missing(former)
    assert log.read_only_reason is None


def test_a_disk_that_cannot_say_is_not_taken_for_a_loss(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    active = log.active_file
    assert active is not None

    def fail(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "stat", fail)
    assert active.is_in_place()
