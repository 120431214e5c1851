"""The cleaner on a broker loop: which log is cleaned when, and what befalls a pass."""

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.config import BrokerConfig, LogConfig
from millrace.disk import Disk
from millrace.errors import KafkaError
from millrace.storage import compaction_process
from millrace.storage.cleaner import LONGEST_BACKOFF_SECONDS, Cleaner
from millrace.storage.log import Log
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    iterate_batches,
    iterate_records,
)

from .. import crafted

HOUR_MS = 3_600_000
PRODUCER = {"producer_id": 5, "producer_epoch": 0}


class DataDirectory:
    """A data directory with its logs and their cleaner, without a broker around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.config = BrokerConfig()
        self.logs: list[Log] = []
        self.removed_later: list[tuple[list[Path], int]] = []
        self.before_swap: Callable[[], None] = lambda: None
        self.cleaner = self.new_cleaner()

    def new_cleaner(self) -> Cleaner:
        return Cleaner(
            lambda: self.logs,
            self.config,
            clock=self.clock,
            timers=self.timers,
            disk=Disk(),
            run_in_thread=self._run,
            remove_later=lambda files, delay_ms: self.removed_later.append((files, delay_ms)),
        )

    async def _run(self, work: Callable[[], object]) -> object:
        result = await asyncio.to_thread(work)
        self.before_swap()
        return result

    async def pass_backoff(self) -> None:
        """Let the time between two rounds of the cleaner pass."""
        await asyncio.sleep(0)
        self.timers.advance(self.config.log_cleaner_backoff_ms)
        await asyncio.sleep(0)

    def log(self, name: str = "topic-0", **config: object) -> Log:
        config = {"cleanup_policy": ("compact",)} | config
        log = Log.open(self.path / name, LogConfig(**config), clock=self.clock, disk=Disk())
        self.logs.append(log)
        return log

    def reopen(self, log: Log, *, clean: bool) -> Log:
        """Stop and start again, as a broker that was stopped or killed."""
        self.logs.remove(log)
        if clean:
            log.close()
        else:
            log.abandon()
        reopened = Log.open(log.directory, log.config, clock=self.clock, disk=Disk(), clean=clean)
        self.logs.append(reopened)
        return reopened

    def append(self, log: Log, *pairs: tuple[bytes, bytes | None], **options: int) -> int:
        """Append one batch and return its base offset."""
        now_ms = self.clock.now_ms()
        records = [Record(delta, now_ms, key, value) for delta, (key, value) in enumerate(pairs)]
        return log.append(memoryview(build_batch(records, **options)), 0).base_offset

    def dirty(self, log: Log, rounds: int = 3) -> None:
        """Overwrite one key and seal each write in a segment."""
        for _ in range(rounds):
            self.append(log, (b"key", b"%d" % log.log_end_offset))
            log.roll()

    async def clean(self) -> None:
        await self.cleaner.clean_due_logs()

    @property
    def checkpoint(self) -> list[str]:
        return (self.path / "cleaner-offset-checkpoint").read_text().splitlines()


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path)


def read(log: Log) -> list[Record]:
    records = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20, min_one_batch=True)) is not None:
        for header, batch in iterate_batches(piece.read()):
            records += [record for record in iterate_records(batch) if record.offset >= offset]
            following = header.next_offset
        offset = following
    return records


def headers(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.headers(0)]


def values(log: Log) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read(log)]


async def test_a_dirty_log_is_compacted_in_place(data: DataDirectory) -> None:
    log = data.log()
    data.dirty(log, 3)
    data.append(log, (b"other", b"active"))
    size = log.size
    await data.clean()
    assert values(log) == [(2, b"2"), (3, b"active")]
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert log.size < size
    assert log.size == sum(path.stat().st_size for path in log.directory.glob("*.log"))


async def test_what_is_clean_is_written_down_as_kafka_does(data: DataDirectory) -> None:
    data.dirty(data.log("b-7"), 3)
    data.dirty(data.log("a-with-dashes-0"), 2)
    await data.clean()
    assert data.checkpoint == ["0", "2", "a-with-dashes 0 2", "b 7 3"]


async def test_the_active_segment_is_never_touched(data: DataDirectory) -> None:
    log = data.log()
    data.append(log, (b"a", b"1"))
    data.append(log, (b"a", b"2"))
    await data.clean()
    assert values(log) == [(0, b"1"), (1, b"2")]


async def test_old_files_are_removed_only_after_the_delay(data: DataDirectory) -> None:
    log = data.log(file_delete_delay_ms=1234)
    data.dirty(log)
    await data.clean()
    ((files, delay_ms),) = data.removed_later
    assert delay_ms == 1234
    assert {path.name.partition(".")[2] for path in files} >= {"log.deleted", "index.deleted"}
    assert all(path.exists() and path.suffix == ".deleted" for path in files)


async def test_slices_handed_out_before_the_swap_stay_readable(data: DataDirectory) -> None:
    log = data.log()
    data.dirty(log)
    piece = log.read(0, 1 << 20, min_one_batch=True)
    assert piece is not None
    before = piece.read()
    await data.clean()
    for files, _ in data.removed_later:
        for path in files:
            path.unlink()
    assert piece.read() == before


async def test_a_log_of_another_policy_is_left_alone(data: DataDirectory) -> None:
    log = data.log(cleanup_policy=("delete",))
    data.dirty(log)
    await data.clean()
    assert len(values(log)) == 3


async def test_compact_and_delete_does_both(data: DataDirectory) -> None:
    log = data.log(cleanup_policy=("compact", "delete"), retention_ms=HOUR_MS)
    data.dirty(log)
    await data.clean()
    assert values(log) == [(2, b"2")]
    data.clock.advance(2 * HOUR_MS)
    log.apply_retention()
    assert values(log) == []
    assert log.log_start_offset == 3
    data.dirty(log, 2)
    await data.clean()
    assert values(log) == [(4, b"4")]


async def test_compact_alone_keeps_records_forever(data: DataDirectory) -> None:
    log = data.log(retention_ms=HOUR_MS, retention_bytes=1)
    data.dirty(log)
    data.clock.advance(100 * HOUR_MS)
    log.apply_retention()
    await data.clean()
    assert values(log) == [(2, b"2")]


class TestWhenALogIsDue:
    async def test_it_must_be_dirty_enough(self, data: DataDirectory) -> None:
        log = data.log(min_cleanable_dirty_ratio=0.5)
        data.append(log, *((b"%d" % number, b"x" * 100) for number in range(50)))
        log.roll()
        await data.clean()
        data.append(log, (b"1", b"new"))
        log.roll()
        await data.clean()
        assert len(read(log)) == 51
        log.config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.001)
        await data.clean()
        assert len(read(log)) == 50

    async def test_the_dirtiest_comes_first(self, data: DataDirectory) -> None:
        clean_mostly, dirty_wholly = data.log("mostly-0", min_cleanable_dirty_ratio=0), data.log("wholly-0")
        data.dirty(clean_mostly, 3)
        await data.clean()
        data.dirty(clean_mostly, 1)
        data.dirty(dirty_wholly, 3)
        chosen = data.cleaner.dirtiest()
        assert chosen is not None
        assert chosen.log is dirty_wholly

    async def test_records_younger_than_the_lag_are_left_alone(self, data: DataDirectory) -> None:
        log = data.log(min_compaction_lag_ms=HOUR_MS)
        data.dirty(log, 2)
        data.clock.advance(HOUR_MS // 2)
        data.dirty(log, 2)
        await data.clean()
        assert len(read(log)) == 4
        data.clock.advance(HOUR_MS // 2)
        await data.clean()
        assert values(log) == [(1, b"1"), (2, b"2"), (3, b"3")]
        data.clock.advance(HOUR_MS // 2)
        await data.clean()
        assert values(log) == [(3, b"3")]

    async def test_an_overdue_log_is_cleaned_however_clean_it_is(self, data: DataDirectory) -> None:
        log = data.log(max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1)
        data.append(log, (b"a", b"1"), (b"a", b"2"))
        data.clock.advance(HOUR_MS)
        await data.clean()
        assert len(read(log)) == 2
        data.clock.advance(1)
        await data.clean()
        assert values(log) == [(1, b"2")]
        assert len(log.segments) == 2

    async def test_an_overdue_log_is_not_cleaned_forever(self, data: DataDirectory) -> None:
        log = data.log(max_compaction_lag_ms=HOUR_MS)
        data.append(log, (b"a", b"1"))
        data.clock.advance(2 * HOUR_MS)
        await data.clean()
        assert not data.cleaner.survey(log, data.clock.now_ms()).is_due


class TestTombstones:
    async def test_they_stay_for_the_retention_and_then_go(self, data: DataDirectory) -> None:
        log = data.log(delete_retention_ms=HOUR_MS, min_cleanable_dirty_ratio=0)
        data.append(log, (b"a", b"1"))
        data.append(log, (b"a", None))
        log.roll()
        await data.clean()
        assert values(log) == [(1, None)]
        data.clock.advance(HOUR_MS - 1)
        data.dirty(log, 1)
        await data.clean()
        assert values(log)[0] == (1, None)
        data.clock.advance(1)
        data.dirty(log, 1)
        await data.clean()
        assert values(log) == [(3, b"3")]


class TestFailures:
    async def test_a_corrupt_log_is_given_up_and_the_others_are_cleaned(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        corrupt, sound = data.log("corrupt-0"), data.log("sound-0")
        data.dirty(corrupt, 5)
        data.dirty(sound, 3)
        path = corrupt.segments[1].path(".log")
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        await data.clean()
        assert values(sound) == [(2, b"2")]
        assert f"{corrupt.directory}: compaction stopped until the next start" in caplog.text
        assert str(path) in caplog.text
        caplog.clear()
        await data.clean()
        assert not caplog.records

    @pytest.mark.parametrize(
        "script",
        [
            "import os; os.kill(os.getpid(), 9)",
            "import sys; sys.stdin.readline(); raise SystemError('went wrong')",
            'print(\'{"disk": "No space left on device"}\')',
            "print('{\"repla', end='')",
        ],
    )
    async def test_a_process_that_dies_costs_nothing_but_the_pass(
        self,
        data: DataDirectory,
        script: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        log = data.log()
        data.dirty(log)
        before = {path: path.read_bytes() for path in log.directory.iterdir()}
        with monkeypatch.context() as patched:
            patched.setattr(compaction_process, "COMMAND", (sys.executable, "-c", script))
            await data.clean()
        assert "compaction failed (attempt 1" in caplog.text
        assert {path: path.read_bytes() for path in log.directory.iterdir()} == before
        await data.clean()
        assert values(log) == [(2, b"2")]

    async def test_a_log_that_keeps_failing_is_tried_less_and_less_often(
        self, data: DataDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        log = data.log()
        data.dirty(log)
        data.config.log_cleaner_backoff_ms = 500
        attempts = tmp_path / "attempts"
        script = f"open({str(attempts)!r}, 'a').write('.'); raise OverflowError('a bug')"
        with monkeypatch.context() as patched:
            patched.setattr(compaction_process, "COMMAND", (sys.executable, "-c", script))
            attempted = []
            for _ in range(32):
                await data.clean()
                attempted.append(len(attempts.read_text()))
                data.clock.advance(500)
        # In the rounds 0, 1, 2, 5, 12 and 27.
        assert [attempted[number] for number in (0, 1, 2, 4, 5, 11, 12, 26, 27, 31)] == [
            *(1, 2, 3, 3, 4, 4, 5, 5, 6, 6),
        ]
        data.clock.advance(1000 * round(LONGEST_BACKOFF_SECONDS))
        await data.clean()
        assert values(log) == [(2, b"2")]
        assert data.cleaner.dirtiest() is None

    async def test_an_unreadable_batch_is_reported_once_and_stops_nothing(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        # As an older version took it, which did not look at the records.
        log = data.log(cleanup_policy=("delete",))
        unreadable = crafted.batch([b"no records"], max_timestamp=data.clock.now_ms())
        log.append(memoryview(unreadable), 0)
        log.roll()
        log.config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
        for _ in range(3):
            data.dirty(log, 2)
            await data.clean()
            assert [header.base_offset for header in headers(log)] == [0, log.log_end_offset - 1]
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        assert f"{log.directory}: compaction cannot read 1 batches" in errors[0]

        log = data.reopen(log, clean=True)
        data.cleaner = data.new_cleaner()
        data.dirty(log, 2)
        await data.clean()
        assert [header.base_offset for header in headers(log)] == [0, log.log_end_offset - 1]
        piece = log.read(0, 1, min_one_batch=True)
        assert piece is not None
        assert piece.read()[HEADER_BYTES:] == b"no records"

    async def test_retention_during_a_pass_calls_it_off(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = data.log()
        data.dirty(log, 4)

        def delete_records() -> None:
            log.delete_records_before(2)
            log.apply_retention()

        data.before_swap = delete_records
        await data.clean()
        assert "segments were deleted meanwhile" in caplog.text
        assert values(log) == [(2, b"2"), (3, b"3")]
        assert not list(log.directory.glob("*.swap"))
        data.before_swap = lambda: None
        await data.clean()
        assert values(log) == [(3, b"3")]

    async def test_truncation_during_a_pass_calls_it_off(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = data.log()
        data.dirty(log, 4)

        def truncate() -> None:
            log.truncate_to(2)
            data.append(log, (b"key", b"new"))
            log.roll()
            data.append(log, (b"key", b"newer"))
            log.roll()
            data.before_swap = lambda: None

        data.before_swap = truncate
        await data.cleaner.clean(data.cleaner.survey(log, data.clock.now_ms()))
        assert "it was truncated meanwhile" in caplog.text
        assert values(log) == [(0, b"0"), (1, b"1"), (2, b"new"), (3, b"newer")]
        await data.clean()
        assert values(log) == [(3, b"newer")]

    async def test_a_truncated_log_counts_as_not_compacted_yet(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log, 4)
        await data.clean()
        log.truncate_to(0)
        data.dirty(log, 5)
        await data.clean()
        assert values(log) == [(4, b"4")]

    async def test_records_that_are_not_committed_are_not_compacted(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log, 4)
        log.set_high_watermark(2)
        await data.clean()
        assert values(log) == [(1, b"1"), (2, b"2"), (3, b"3")]

    async def test_a_log_deleted_during_a_pass_is_let_go(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log)
        removals = []

        def delete_log() -> None:
            if log in data.logs:
                data.logs.remove(log)
                removals.append(log.delete())

        data.before_swap = delete_log
        await data.clean()
        removals[0]()
        assert not log.directory.exists()
        assert data.cleaner.dirtiest() is None

    async def test_a_topic_created_again_during_a_pass_gets_nothing_of_the_old_one(
        self, data: DataDirectory
    ) -> None:
        old = data.log()
        data.dirty(old)

        def create_again() -> None:
            if old in data.logs:
                data.logs.remove(old)
                old.delete()()
                new = data.log()
                data.append(new, (b"key", b"new"))

        data.before_swap = create_again
        await data.clean()
        (new,) = data.logs
        assert values(new) == [(0, b"new")]
        assert values(data.reopen(new, clean=False)) == [(0, b"new")]

    async def test_what_a_killed_pass_left_is_removed_by_the_next_start(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log)
        (log.directory / f"{0:020d}.log.cleaned").write_bytes(b"half a segm")
        (log.directory / f"{0:020d}.index.swap").write_bytes(b"half an ind")
        log = data.reopen(log, clean=False)
        assert not list(log.directory.glob("*.cleaned")) + list(log.directory.glob("*.swap"))
        assert len(read(log)) == 3


class TestRestarts:
    @pytest.mark.parametrize("clean", [True, False])
    async def test_a_compacted_log_opens_as_it_was(self, data: DataDirectory, clean: bool) -> None:
        log = data.log()
        data.dirty(log, 4)
        data.append(log, (b"key", b"last"))
        await data.clean()
        before, end = read(log), log.log_end_offset
        log = data.reopen(log, clean=clean)
        assert (read(log), log.log_end_offset) == (before, end)
        assert data.append(log, (b"new", b"")) == end

    async def test_the_end_survives_when_the_last_records_do_not(self, data: DataDirectory) -> None:
        log = data.log(delete_retention_ms=0, min_cleanable_dirty_ratio=0)
        data.append(log, (b"a", None))
        log.roll()
        await data.clean()
        data.append(log, (b"b", None))
        log.roll()
        await data.clean()
        data.append(log, (b"c", None))
        log.roll()
        await data.clean()
        log = data.reopen(log, clean=False)
        assert log.log_end_offset == 3
        assert [record.key for record in read(log)] == [b"c"]

    async def test_the_checkpoint_is_taken_up_again(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log)
        await data.clean()
        cleaner = data.new_cleaner()
        assert cleaner.survey(log, data.clock.now_ms()).first_dirty_offset == 3

    @pytest.mark.parametrize("content", ["", "0\n2\ntopic 0 3\n", "0\n1\ntopic 0 three\n", "\x80"])
    async def test_a_damaged_checkpoint_means_to_clean_from_the_start(
        self, data: DataDirectory, content: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = data.log()
        data.dirty(log)
        (data.path / "cleaner-offset-checkpoint").write_text(content, encoding="latin1")
        cleaner = data.new_cleaner()
        assert cleaner.survey(log, data.clock.now_ms()).first_dirty_offset == 0
        assert "not compacted yet" in caplog.text

    async def test_a_checkpoint_past_the_end_of_the_log_is_not_believed(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = data.log()
        data.dirty(log)
        (data.path / "cleaner-offset-checkpoint").write_text("0\n1\ntopic 0 99\n")
        cleaner = data.new_cleaner()
        assert cleaner.survey(log, data.clock.now_ms()).first_dirty_offset == 0
        assert "the log ends at 3" in caplog.text

    async def test_a_topic_created_again_is_cleaned_from_the_start(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log)
        await data.clean()
        data.logs.remove(log)
        shutil.rmtree(log.directory)
        log = data.log()
        data.dirty(log, 5)
        await data.clean()
        assert values(log) == [(4, b"4")]
        assert data.checkpoint[2:] == ["topic 0 5"]

    @pytest.mark.parametrize("clean", [True, False])
    async def test_an_idempotent_producer_continues_after_its_records_are_gone(
        self, data: DataDirectory, clean: bool
    ) -> None:
        log = data.log()
        data.append(log, (b"a", b"1"), (b"b", b"1"), base_sequence=0, **PRODUCER)
        data.append(log, (b"a", b"2"), base_sequence=2, **PRODUCER)
        data.append(log, (b"a", b"3"), (b"b", b"3"))
        log.roll()
        await data.clean()
        assert values(log) == [(3, b"3"), (4, b"3")]
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
        log = data.reopen(log, clean=clean)
        assert data.append(log, (b"a", b"2"), base_sequence=2, **PRODUCER) == 2
        with pytest.raises(KafkaError, match="sequence"):
            data.append(log, (b"a", b"5"), base_sequence=7, **PRODUCER)
        assert data.append(log, (b"a", b"4"), base_sequence=3, **PRODUCER) == 5


class TestBounds:
    async def test_more_keys_than_the_buffer_holds_take_several_passes(self, data: DataDirectory) -> None:
        data.config.log_cleaner_dedupe_buffer_size = 4000
        log = data.log(min_cleanable_dirty_ratio=0)
        for number in range(100):
            data.append(log, (b"%d" % (number % 50), b"%d" % number))
        log.roll()
        job = data.cleaner.job(data.cleaner.survey(log, data.clock.now_ms()))
        assert job.max_keys == 18
        await data.clean()
        assert [record.offset for record in read(log)] == list(range(50, 100))
        assert data.checkpoint[2:] == ["topic 0 100"]

    async def test_cleaners_share_the_buffer(self, data: DataDirectory) -> None:
        data.config.log_cleaner_threads = 4
        log = data.log()
        data.dirty(log)
        whole = data.config.log_cleaner_dedupe_buffer_size
        job = data.cleaner.job(data.cleaner.survey(log, data.clock.now_ms()))
        assert job.max_keys == int(whole * 0.9 / 4 / 200)

    async def test_reading_and_writing_can_be_throttled(self, data: DataDirectory) -> None:
        log = data.log()
        data.dirty(log, 4)
        data.config.log_cleaner_io_max_bytes_per_second = log.size * 2 / 0.3
        started = asyncio.get_running_loop().time()
        await data.clean()
        assert asyncio.get_running_loop().time() - started > 0.3


class TestRunning:
    async def test_a_started_cleaner_cleans_by_itself(self, data: DataDirectory) -> None:
        data.config.log_cleaner_threads = 2
        logs = [data.log(f"topic-{number}") for number in range(3)]
        for log in logs:
            data.dirty(log)
        data.cleaner.start()
        async with asyncio.timeout(60):
            while any(len(read(log)) > 1 for log in logs):
                await data.pass_backoff()
                await asyncio.sleep(0.01)
        await data.cleaner.stop()

    async def test_a_cleaner_that_is_switched_off_does_nothing(self, data: DataDirectory) -> None:
        data.config.log_cleaner_enable = False
        data.dirty(data.log())
        data.cleaner.start()
        await data.pass_backoff()
        assert not len(data.timers)
        await data.cleaner.stop()
        assert not (data.path / "cleaner-offset-checkpoint").exists()

    async def test_stopping_ends_the_process_at_once(
        self, data: DataDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        started = tmp_path / "started"
        script = f"import time, pathlib; pathlib.Path({str(started)!r}).touch(); time.sleep(60)"
        monkeypatch.setattr(compaction_process, "COMMAND", (sys.executable, "-c", script))
        data.dirty(data.log())
        data.cleaner.start()
        async with asyncio.timeout(60):
            while not started.exists():
                await data.pass_backoff()
                await asyncio.sleep(0.01)
            await data.cleaner.stop()

    async def test_a_pass_is_told_in_one_line(
        self, data: DataDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "millrace.storage.cleaner")
        log = data.log()
        data.dirty(log, 4)
        await data.clean()
        assert f"{log.directory}: compacted 4 records to 1" in caplog.text
