"""Reading: which bytes a reader gets for an offset."""

import errno
import os

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.reader import Reader
from millrace.wire.records import iterate_batches

from .by_time import first_at_or_after

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def offsets(piece):
    """The base offsets of the batches in a slice, which holds whole batches only."""
    if piece is None:
        return []
    content = piece.read()
    batches = list(iterate_batches(content))
    assert sum(header.size for header, _ in batches) == len(content) == len(piece)
    return [header.base_offset for header, _ in batches]


def fill(log, make_batch, batches, count=1):
    for _ in range(batches):
        log.append(make_batch(count), leader_epoch=0)


def test_a_slice_runs_from_the_offset_to_the_end_of_its_segment(open_log, make_batch):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    starts = [segment.base_offset for segment in log.segments]
    assert offsets(log.read(0, 1 << 20, min_one_batch=True)) == list(range(starts[1]))
    assert offsets(log.read(3, 1 << 20, min_one_batch=True)) == list(range(3, starts[1]))
    assert offsets(log.read(starts[-1], 1 << 20, min_one_batch=True)) == list(range(starts[-1], 25))


def test_every_offset_is_found(open_log, make_batch):
    log = open_log(SMALL)
    fill(log, make_batch, 20, count=3)
    for offset in range(60):
        log._reader.forget_positions()
        assert offsets(log.read(offset, 1, min_one_batch=True)) == [offset // 3 * 3]


def test_max_bytes_cuts_between_batches(open_log, make_batch):
    log = open_log()
    fill(log, make_batch, 50)
    size = len(make_batch())
    assert offsets(log.read(0, 10 * size, min_one_batch=True)) == list(range(10))
    assert offsets(log.read(0, 10 * size + size - 1, min_one_batch=True)) == list(range(10))
    assert offsets(log.read(7, 3 * size, min_one_batch=True)) == [7, 8, 9]


def test_a_first_batch_beyond_max_bytes_goes_out_only_if_asked_for(open_log, make_batch):
    log = open_log()
    fill(log, make_batch, 3)
    assert log.read(1, 10, min_one_batch=False) is None
    assert offsets(log.read(1, 10, min_one_batch=True)) == [1]
    assert offsets(log.read(1, 0, min_one_batch=True)) == [1]


def test_the_end_of_the_log_has_nothing_yet(open_log, make_batch):
    log = open_log()
    assert log.read(0, 100, min_one_batch=True) is None
    fill(log, make_batch, 2)
    assert log.read(2, 100, min_one_batch=True) is None


def test_offsets_outside_the_log_are_out_of_range(open_log, make_batch):
    log = open_log()
    fill(log, make_batch, 5)
    log.delete_records_before(2)
    for offset in (-1, 0, 1, 6):
        with pytest.raises(KafkaError) as refusal:
            log.read(offset, 100, min_one_batch=True)
        assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE


def test_nothing_at_or_past_the_bound_is_read(open_log, make_batch):
    log = open_log(SMALL)
    fill(log, make_batch, 30)
    assert offsets(log.read(0, 1 << 20, min_one_batch=True, up_to=4)) == [0, 1, 2, 3]
    assert log.read(4, 1 << 20, min_one_batch=True, up_to=4) is None
    assert offsets(log.read(3, 1, min_one_batch=True, up_to=4)) == [3]
    last = log.segments[-1].base_offset
    assert offsets(log.read(last, 1 << 20, min_one_batch=True, up_to=100))[0] == last
    assert offsets(log.read(last - 1, 1 << 20, min_one_batch=True, up_to=last)) == [last - 1]


def test_a_sequential_reader_needs_no_search(open_log, make_batch, monkeypatch):
    log = open_log()
    fill(log, make_batch, 200)
    size = len(make_batch())
    piece = log.read(0, 20 * size, min_one_batch=True)
    position = 20

    def no_search(*_):
        raise AssertionError("searched")

    monkeypatch.setattr(Reader, "_locate", no_search)
    while piece is not None and position < 200:
        piece = log.read(position, 20 * size, min_one_batch=True)
        assert offsets(piece)[0] == position
        position = offsets(piece)[-1] + 1
    assert log.read(200, 100, min_one_batch=True) is None
    fill(log, make_batch, 1)
    assert offsets(log.read(200, 100, min_one_batch=True)) == [200]


def test_a_reader_at_the_end_follows_into_the_next_segment(open_log, make_batch):
    log = open_log(SMALL)
    seen = []
    for _ in range(30):
        fill(log, make_batch, 1)
        seen += offsets(log.read(len(seen), 1 << 20, min_one_batch=True))
    assert seen == list(range(30))


def test_the_cost_of_a_search_does_not_grow_with_the_log(open_log, make_batch, monkeypatch):
    log = open_log(LogConfig(index_interval_bytes=1000))
    preads = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: preads.append(args[1]) or real(*args))
    for _ in range(3):
        fill(log, make_batch, 1000)
        log._reader.forget_positions()
        preads.clear()
        log.read(log.log_end_offset - 500, 1, min_one_batch=True)
        # A piece of the file to find the batch, and one to find its end.
        assert sum(preads) < 20_000 < log.size


def test_a_slice_survives_the_removal_of_its_segment(open_log, make_batch, clock):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    piece = log.read(0, 1 << 20, min_one_batch=True)
    before = piece.read()
    clock.advance(log.config.retention_ms + 1000)
    for path in log.apply_retention():
        path.unlink()
    log.release_idle_files()
    assert piece.read() == before


def test_idle_files_are_let_go_and_opened_again(open_log, make_batch):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    log.read(0, 100, min_one_batch=True)
    log.release_idle_files()
    log.release_idle_files()
    assert all(segment._file is None for segment in log.segments)
    assert offsets(log.read(0, 1, min_one_batch=True)) == [0]
    fill(log, make_batch, 1)
    assert log.log_end_offset == 26


def test_too_many_open_files_fail_one_read_and_not_the_log(open_log, make_batch, monkeypatch, caplog):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    log.abandon()

    def exhausted(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(type(log._disk), "open_for_append", exhausted)
        patch.setattr(type(log._disk), "open_for_reading", exhausted)
        for action in (
            lambda: log.read(0, 100, min_one_batch=True),
            lambda: log.append(make_batch(), leader_epoch=0),
            lambda: first_at_or_after(log, 0),
        ):
            with pytest.raises(KafkaError) as refusal:
                action()
            assert refusal.value.error is Error.KAFKA_STORAGE_ERROR
            assert "Too many open files" in refusal.value.message
    assert "Too many open files" in caplog.text
    assert offsets(log.read(0, 1, min_one_batch=True)) == [0]
    fill(log, make_batch, 1)
    assert log.log_end_offset == 26


def test_a_file_system_that_turned_read_only_still_serves_readers(open_log, make_batch, monkeypatch):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    log.abandon()

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(type(log._disk), "open_for_append", read_only)
    assert offsets(log.read(0, 1, min_one_batch=True)) == [0]
    assert offsets(log.read(24, 1, min_one_batch=True)) == [24]
    with pytest.raises(KafkaError, match="Read-only file system"):
        log.append(make_batch(), leader_epoch=0)


def test_an_offset_that_compaction_removed_leads_to_the_next_batch(open_log, make_batch):
    log = open_log(SMALL)
    fill(log, make_batch, 25)
    first, second = log.segments[0], log.segments[1]
    path = first.path(".log")
    size = len(make_batch())
    content = path.read_bytes()
    kept = content[: 2 * size] + content[4 * size : 6 * size]
    log.close()
    path.write_bytes(kept)
    for suffix in (".index", ".timeindex"):
        first.path(suffix).unlink()
    log = open_log(SMALL, clean=True)
    assert offsets(log.read(2, 1, min_one_batch=True)) == [4]
    assert offsets(log.read(6, 1, min_one_batch=True)) == [second.base_offset]
