"""Flushing: what is forced to disk, and when the recovery point moves."""

import os
from pathlib import Path

from millrace.config import LogConfig


def test_a_flush_moves_the_recovery_point_to_where_it_began(open_log, make_batch):
    log = open_log()
    log.append(make_batch(3), leader_epoch=0)
    assert log.unflushed_messages == 3
    flush = log.begin_flush()
    log.append(make_batch(2), leader_epoch=0)
    flush.run()
    assert log.recovery_point == 0
    flush.complete()
    assert log.recovery_point == 3
    assert log.unflushed_messages == 2


def test_nothing_unflushed_is_nothing_to_do(open_log, make_batch, disk):
    log = open_log()
    assert log.begin_flush() is None
    log.append(make_batch(), leader_epoch=0)
    log.flush()
    before = disk.fsyncs
    assert log.begin_flush() is None
    log.flush()
    assert disk.fsyncs == before


def test_segments_sealed_since_the_last_flush_are_included_with_their_indexes(open_log, make_batch, disk):
    log = open_log(LogConfig(segment_bytes=len(make_batch())))
    log.append(make_batch(), leader_epoch=0)
    log.flush()
    for _ in range(3):
        log.append(make_batch(), leader_epoch=0)
    before = disk.fsyncs
    log.flush()
    # Of four segments the first was flushed before, but a recovery point at its end counts as the next one's.
    assert disk.fsyncs - before == 3 + 2 * 2
    assert log.recovery_point == 4


def test_new_names_are_forced_to_disk_once(open_log, make_batch, disk, monkeypatch, tmp_path):
    synced = []

    def fsync_directory(_, directory):
        # Brokers of other tests may be at work beside this one.
        if directory.is_relative_to(tmp_path):
            synced.append(directory)

    monkeypatch.setattr(type(disk), "fsync_directory", fsync_directory)

    def flushed_directories():
        synced.clear()
        log.append(make_batch(), leader_epoch=0)
        log.flush()
        return synced

    log = open_log()
    # The partition's own directory is new, and its first segment in it.
    assert flushed_directories() == [log.directory, log.directory.parent]
    assert flushed_directories() == []
    log.roll()
    assert flushed_directories() == [log.directory]
    assert flushed_directories() == []


def test_the_snapshot_of_a_new_segment_is_forced_to_disk_with_it(open_log, make_batch, disk, monkeypatch):
    """Once older segments are deleted, only the snapshot knows of a transaction that began in them."""
    synced = set()

    def fsync(_, fd):
        synced.add(Path(f"/proc/self/fd/{fd}").readlink())
        os.fsync(fd)

    log = open_log()
    log.append(make_batch(producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=0)
    log.flush()
    log.roll()
    log.append(make_batch(producer_id=1, producer_epoch=0, base_sequence=1), leader_epoch=0)
    monkeypatch.setattr(type(disk), "fsync", fsync)
    log.flush()
    assert log.directory / f"{1:020d}.snapshot" in synced


def test_a_deleted_log_has_nothing_left_to_flush(open_log, make_batch):
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.delete()
    # The directory is that of a new topic of the same name.
    successor = open_log()
    assert log.begin_flush() is None
    assert successor.log_end_offset == 0


def test_segments_removed_during_a_flush_do_not_disturb_it(open_log, make_batch, clock):
    log = open_log(LogConfig(segment_bytes=len(make_batch()), retention_ms=10))
    for _ in range(4):
        log.append(make_batch(), leader_epoch=0)
    flush = log.begin_flush()
    clock.advance(100)
    for path in log.apply_retention():
        path.unlink()
    flush.run()
    flush.complete()
    assert log.recovery_point == 4


def test_producers_are_kept_now_and_then_between_rolls(open_log, make_batch, monkeypatch):
    monkeypatch.setattr("millrace.storage.log_flusher._SNAPSHOT_INTERVAL_BYTES", 1000)
    log = open_log()
    for sequence in range(30):
        log.append(make_batch(producer_id=1, producer_epoch=0, base_sequence=sequence), leader_epoch=0)
        log.flush()
    snapshots = list(log.directory.glob("*.snapshot"))
    assert len(snapshots) == 1
    assert 20 < int(snapshots[0].stem) <= 30


def test_a_closed_log_needs_no_recovery(open_log, make_batch, caplog):
    caplog.set_level("INFO")
    log = open_log()
    log.append(make_batch(), leader_epoch=0)
    log.close()
    assert log.recovery_point == 1
    log = open_log(clean=True)
    assert log.unflushed_messages == 0
    assert caplog.text == ""
