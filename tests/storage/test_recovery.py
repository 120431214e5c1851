"""Logs after an unclean stop, with a damaged file, or with a missing one."""

import errno
import os
import shutil

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.wire.records import check_batch, iterate_batches

from .by_time import first_at_or_after, newest

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)


@pytest.fixture
def filled(open_log, make_batch):
    """A log of several segments that was not closed."""
    log = open_log(CONFIG)
    for _ in range(40):
        log.append(make_batch(), leader_epoch=0)
    assert len(log.segments) >= 3
    log.abandon()
    return log


@pytest.fixture
def closed(open_log, make_batch, clock):
    """A closed log of several segments with a record every 10 ms, the last one now."""
    log = open_log(CONFIG)
    for _ in range(40):
        clock.advance(10)
        log.append(make_batch(), leader_epoch=0)
    log.close()
    return log


def offsets(log):
    """Every offset that a reader gets, batch by batch."""
    seen = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 500, min_one_batch=True)) is not None:
        for _, batch in iterate_batches(piece.read()):
            header = check_batch(batch)
            seen.append(header.base_offset)
            offset = header.next_offset
    return seen


def indexes(log):
    return {path.name: path.read_bytes() for path in log.directory.glob("*index")}


def test_a_killed_process_loses_nothing(filled, open_log, caplog):
    caplog.set_level("INFO")
    log = open_log(CONFIG)
    assert offsets(log) == list(range(40))
    assert log.log_end_offset == 40
    assert "recovered" in caplog.text
    assert "ends at 40" in caplog.text


def test_recovery_gives_the_indexes_that_a_clean_stop_leaves(open_log, make_batch):
    for name in ("clean-0", "killed-0"):
        log = open_log(CONFIG, name=name)
        for _ in range(40):
            log.append(make_batch(), leader_epoch=0)
        log.close() if name == "clean-0" else log.abandon()
    killed = open_log(CONFIG, name="killed-0")
    killed.close()
    clean = open_log(CONFIG, name="clean-0", clean=True)
    assert indexes(killed) == indexes(clean)
    assert len(indexes(clean)) == 2 * len(clean.segments)


def test_a_tail_torn_at_any_byte_is_cut(filled, open_log, tmp_path, make_batch):
    last = filled.segments[-1]
    content = last.path(".log").read_bytes()
    (*_, (header, _)) = iterate_batches(content)
    start = len(content) - header.size
    for torn_at in range(start, len(content)):
        name = f"torn-{torn_at}"
        shutil.copytree(filled.directory, tmp_path / name)
        path = tmp_path / name / last.path(".log").name
        path.write_bytes(content[:torn_at])
        log = open_log(CONFIG, name=name, recovery_point=last.base_offset)
        assert log.log_end_offset == 39
        assert path.stat().st_size == start
        assert log.append(make_batch(), leader_epoch=0).base_offset == 39
        log.abandon()


def test_the_log_line_says_what_was_cut(filled, open_log, caplog):
    path = filled.segments[-1].path(".log")
    path.write_bytes(path.read_bytes()[:-10])
    size = path.stat().st_size
    log = open_log(CONFIG)
    cut = size - log.segments[-1].size
    assert f"cutting the last {cut} bytes" in caplog.text
    assert str(path) in caplog.text
    assert "offset 39" in caplog.text


def test_zeros_at_the_end_are_cut(filled, open_log):
    path = filled.segments[-1].path(".log")
    with path.open("ab") as file:
        file.write(bytes(5000))
    assert offsets(open_log(CONFIG)) == list(range(40))


def test_a_flipped_bit_past_the_recovery_point_ends_the_log_there(filled, open_log, make_batch, caplog):
    victim = filled.segments[1]
    path = victim.path(".log")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    log = open_log(CONFIG)
    lost_from = filled.segments[2].base_offset - 1
    assert offsets(log) == list(range(lost_from))
    assert "checksum" in caplog.text
    assert "removing" in caplog.text
    assert len(log.segments) == 2
    assert log.append(make_batch(), leader_epoch=0).base_offset == lost_from


def test_any_flipped_bit_of_a_batch_is_noticed(filled, open_log, tmp_path):
    last = filled.segments[-1]
    content = last.path(".log").read_bytes()
    (*_, (header, _)) = iterate_batches(content)
    start = len(content) - header.size
    # The leader epoch (bytes 12 to 15) is the one field that the checksum leaves out and nothing depends on.
    for position in (*range(12), *range(16, header.size)):
        name = f"flipped-{position}"
        shutil.copytree(filled.directory, tmp_path / name)
        damaged = bytearray(content)
        damaged[start + position] ^= 0x40
        (tmp_path / name / last.path(".log").name).write_bytes(damaged)
        log = open_log(CONFIG, name=name, recovery_point=last.base_offset)
        if position in range(4, 8):
            # A base offset that is somewhat larger is still in order; the batch then simply has it.
            assert log.log_end_offset > 40
        else:
            assert log.log_end_offset == 39
        log.abandon()


def test_recovery_starts_at_the_recovery_point(open_log, make_batch, caplog):
    caplog.set_level("INFO")
    log = open_log(LogConfig(index_interval_bytes=300))
    for number in range(100):
        log.append(make_batch(), leader_epoch=0)
        if number == 89:
            log.flush()
    log.abandon()
    recovered = open_log(LogConfig(index_interval_bytes=300), recovery_point=log.recovery_point)
    assert recovered.log_end_offset == 100
    checked = int(caplog.text.split("checked ")[1].split()[0])
    assert 10 <= checked < 20
    assert offsets(recovered) == list(range(100))
    recovered.close()
    rebuilt = indexes(recovered)
    for path in recovered.directory.glob("*index"):
        path.unlink()
    from_scratch = open_log(LogConfig(index_interval_bytes=300))
    assert offsets(from_scratch) == list(range(100))
    # The flush has put one more timestamp into the time index; all else is the same.
    assert rebuilt[f"{0:020d}.index"] == indexes(from_scratch)[f"{0:020d}.index"]
    assert newest(from_scratch) == newest(recovered)


def test_a_recovery_point_beyond_the_end_is_no_harm(filled, open_log):
    log = open_log(CONFIG, recovery_point=1000)
    assert log.log_end_offset == 40
    assert log.recovery_point == 40


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "zeros behind", "noise", "foreign"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_index_is_rebuilt_with_a_log_line(closed, open_log, caplog, *, suffix, damage, which):
    log = closed
    intact = indexes(log)
    path = log.segments[which].path(suffix)
    content = path.read_bytes()
    assert content
    if damage == "missing":
        path.unlink()
    else:
        foreign = log.segments[1].path(suffix).read_bytes()
        path.write_bytes(
            {
                "empty": b"",
                "odd size": content[:-1],
                "zeros behind": content + bytes(24),
                "noise": b"\xa5" * len(content),
                "foreign": foreign[::-1],
            }[damage]
        )
    log = open_log(CONFIG, clean=True)
    first = log._clock.now_ms() - 390
    assert [first_at_or_after(log, first + 10 * number).offset for number in range(40)] == list(range(40))
    assert offsets(log) == list(range(40))
    assert indexes(log) == intact
    assert "rebuilding the indexes" in caplog.text


def test_files_of_no_bytes_are_an_empty_log(open_log, tmp_path, make_batch):
    directory = tmp_path / "events-0"
    directory.mkdir()
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{7:020d}{suffix}").touch()
    for clean in (True, False):
        log = open_log(clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.append(make_batch(), leader_epoch=0).base_offset == 7


def test_an_empty_last_segment_after_a_roll_is_kept(open_log, make_batch):
    log = open_log(CONFIG)
    log.append(make_batch(3), leader_epoch=0)
    log.roll()
    log.abandon()
    for clean in (False, True):
        log = open_log(clean=clean)
        assert log.log_end_offset == 3
        assert len(log.segments) == 2
        log.close()


def test_leftovers_are_removed(filled, open_log):
    names = [
        "00000000000000000000.log.deleted",
        "00000000000000000009.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ]
    for name in [*names, f"{99:020d}.index"]:
        (filled.directory / name).write_bytes(b"left over")
    log = open_log(CONFIG)
    left = {path.name for path in log.directory.iterdir()}
    assert not left & {*names, f"{99:020d}.index"}
    assert offsets(log) == list(range(40))


def test_a_swap_that_was_decided_is_finished(open_log, make_batch):
    log = open_log(CONFIG)
    for _ in range(40):
        log.append(make_batch(), leader_epoch=0)
    log.close()
    first, second, third = log.segments[:3]
    merged = first.path(".log").read_bytes() + second.path(".log").read_bytes()
    first.path(".log.swap").write_bytes(merged)
    log = open_log(CONFIG, clean=True)
    assert [segment.base_offset for segment in log.segments][:2] == [0, third.base_offset]
    assert offsets(log) == list(range(40))


def test_foreign_files_are_left_alone(filled, open_log):
    (filled.directory / "notes.txt").write_text("mine")
    open_log(CONFIG)
    assert (filled.directory / "notes.txt").read_text() == "mine"


def test_a_clean_mark_on_a_torn_log_does_not_fool_us(filled, open_log, caplog):
    path = filled.segments[-1].path(".log")
    path.write_bytes(path.read_bytes()[:-1])
    log = open_log(CONFIG, clean=True)
    assert log.log_end_offset == 39
    assert "although it was closed cleanly" in caplog.text


def test_leader_epochs_are_read_from_the_batches(open_log, make_batch):
    log = open_log(CONFIG)
    for epoch in (0, 0, 2, 5):
        log.append(make_batch(), leader_epoch=epoch)
    log.abandon()
    (log.directory / "leader-epoch-checkpoint").write_text("garbage")
    log = open_log(CONFIG)
    assert log.latest_epoch == 5
    assert log.epoch_end_offset(0) == (0, 2)


def test_epochs_past_the_cut_are_forgotten(open_log, make_batch):
    log = open_log(CONFIG)
    log.append(make_batch(), leader_epoch=0)
    log.append(make_batch(), leader_epoch=1)
    log.abandon()
    path = log.segments[0].path(".log")
    path.write_bytes(path.read_bytes()[:-1])
    assert open_log(CONFIG).latest_epoch == 0


def test_a_log_that_ends_before_its_start_starts_over(filled, open_log, caplog):
    log = open_log(CONFIG, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert "starting over" in caplog.text


def test_a_new_log_starts_at_the_given_offset(open_log):
    log = open_log(log_start_offset=12)
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    assert log.segments[0].path(".log").name == "00000000000000000012.log"


def test_a_batch_destroyed_below_the_recovery_point_is_met_by_its_readers_only(closed, open_log, caplog):
    sealed = closed.segments[0]
    content = bytearray(sealed.path(".log").read_bytes())
    size = len(content) // sealed_batches(sealed)
    content[4 * size : 4 * size + 20] = bytes(20)
    sealed.path(".log").write_bytes(content)
    sealed.path(".index").unlink()
    log = open_log(CONFIG, clean=True)
    assert log.read(3, 1, min_one_batch=True) is not None
    with pytest.raises(KafkaError) as refusal:
        log.read(5, 1, min_one_batch=True)
    assert refusal.value.error is Error.CORRUPT_MESSAGE
    assert "no whole batch" in caplog.text
    assert log.read(closed.segments[1].base_offset, 1, min_one_batch=True) is not None
    assert log.log_end_offset == 40


def sealed_batches(segment):
    return len(list(iterate_batches(segment.path(".log").read_bytes())))


def test_a_read_only_directory_is_read_from_with_a_warning(filled, open_log, disk, monkeypatch, caplog):
    end_offset = filled.log_end_offset

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(type(disk), "write_at", read_only)
    log = open_log(CONFIG)
    assert log.log_end_offset == end_offset
    assert log.read(0, 1 << 20, min_one_batch=True) is not None
    assert "Read-only file system" in caplog.text
