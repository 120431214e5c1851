"""Retention by time and size, DeleteRecords, and what becomes of the files."""

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError


@pytest.fixture
def fill(make_batch):
    def append(log, batches):
        for _ in range(batches):
            log.append(make_batch(), leader_epoch=0)

    return append


def starts(log):
    return [segment.base_offset for segment in log.segments]


def per_segment(make_batch, batches, **options):
    return LogConfig(segment_bytes=batches * len(make_batch()), **options)


def test_segments_go_when_their_newest_record_is_too_old(open_log, make_batch, fill, clock):
    log = open_log(per_segment(make_batch, 5, retention_ms=1000))
    fill(log, 5)
    clock.advance(600)
    fill(log, 5)
    clock.advance(401)
    assert log.apply_retention()
    assert starts(log) == [5]
    assert log.log_start_offset == 5
    assert log.size == 5 * len(make_batch())


def test_a_segment_stays_for_as_long_as_its_retention(open_log, make_batch, fill, clock):
    log = open_log(per_segment(make_batch, 5, retention_ms=1000))
    fill(log, 5)
    newest_ms = log.segments[0].max_timestamp
    clock.advance(newest_ms + 1000 - clock.now_ms())
    assert log.apply_retention() == []
    clock.advance(1)
    assert log.apply_retention()


def test_an_expired_active_segment_is_rolled_and_goes(open_log, make_batch, fill, clock):
    log = open_log(LogConfig(retention_ms=1000))
    fill(log, 5)
    clock.advance(1001)
    log.apply_retention()
    assert starts(log) == [5]
    assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
    assert log.apply_retention() == []
    fill(log, 1)
    assert log.log_end_offset == 6


def test_records_without_timestamps_age_by_their_file(open_log, make_batch, clock):
    log = open_log(LogConfig(retention_ms=1000))
    log.append(make_batch(timestamp=-1), leader_epoch=0)
    # The file has the machine's time, which is later than the test's.
    assert log.apply_retention() == []


def test_segments_go_when_the_rest_is_large_enough(open_log, make_batch, fill):
    size = len(make_batch())
    log = open_log(per_segment(make_batch, 5, retention_bytes=12 * size))
    fill(log, 22)
    log.apply_retention()
    # Three segments hold 12 batches; without the second there would be less than the 12 to be kept.
    assert starts(log) == [10, 15, 20]
    log.config = per_segment(make_batch, 5, retention_bytes=0)
    log.apply_retention()
    assert log.size == 0
    assert log.log_start_offset == log.log_end_offset == 22


def test_nothing_is_removed_without_limits_or_with_compaction_only(open_log, make_batch, fill, clock):
    for policy in (
        {"retention_ms": -1, "retention_bytes": -1},
        {"retention_ms": 1, "retention_bytes": 1, "cleanup_policy": ("compact",)},
    ):
        log = open_log(per_segment(make_batch, 5, **policy), name=f"events-{len(policy)}")
        fill(log, 12)
        clock.advance(10**10)
        assert log.apply_retention() == []
        assert starts(log) == [0, 5, 10]


def test_compact_and_delete_deletes(open_log, make_batch, fill, clock):
    log = open_log(per_segment(make_batch, 5, retention_ms=1000, cleanup_policy=("compact", "delete")))
    fill(log, 12)
    clock.advance(1001)
    assert log.apply_retention()


def test_deleted_records_are_out_of_range_at_once_and_their_segments_go_later(open_log, make_batch, fill):
    log = open_log(per_segment(make_batch, 5))
    fill(log, 12)
    assert log.delete_records_before(7) == 7
    assert log.delete_records_before(3) == 7
    with pytest.raises(KafkaError) as refusal:
        log.read(6, 100, min_one_batch=True)
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.read(7, 100, min_one_batch=True) is not None
    log.apply_retention()
    assert starts(log) == [5, 10]


def test_records_past_the_end_cannot_be_deleted(open_log, fill):
    log = open_log()
    fill(log, 2)
    with pytest.raises(KafkaError) as refusal:
        log.delete_records_before(3)
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(2) == 2


def test_the_files_are_renamed_and_handed_out_for_removal(open_log, make_batch, fill, clock):
    log = open_log(per_segment(make_batch, 5, retention_ms=1000))
    fill(log, 6)
    clock.advance(1001)
    fill(log, 1)
    files = log.apply_retention()
    assert sorted(path.name for path in files) == [
        f"{0:020d}.index.deleted",
        f"{0:020d}.log.deleted",
        f"{0:020d}.timeindex.deleted",
    ]
    assert all(path.exists() for path in files)
    log.close()
    open_log(clean=True, log_start_offset=5)
    assert not any(path.exists() for path in files)


def test_the_start_offset_survives_a_restart(open_log, make_batch, fill):
    config = per_segment(make_batch, 5)
    log = open_log(config)
    fill(log, 12)
    log.delete_records_before(7)
    log.close()
    log = open_log(config, clean=True, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 12)


def test_leader_epochs_before_the_start_are_forgotten(open_log, make_batch):
    log = open_log()
    for epoch in range(4):
        log.append(make_batch(5), leader_epoch=epoch)
    log.delete_records_before(12)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n2 12\n3 15\n"
