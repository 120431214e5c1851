"""Random lives of a log, against a plain list of records."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch, check_batch, iterate_batches, iterate_records

from .by_time import first_at_or_after

CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=200,
    segment_ms=60_000,
    retention_ms=300_000,
    segment_index_bytes=120,
)


class LogLife(RuleBasedStateMachine):
    """Appends, reads, rolls, retention, restarts, crashes and full disks."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.directory = Path(self.home.name) / "model-0"
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.records: list[tuple[int, bytes]] = []
        self.sequence = 0
        self.open()

    def open(self, **options) -> None:
        self.log = Log.open(self.directory, CONFIG, clock=self.clock, disk=self.disk, **options)

    def teardown(self) -> None:
        self.log.abandon()
        self.home.cleanup()

    def batch(self, count: int, size: int, codec: Codec, sequence: int) -> memoryview:
        records = [
            Record(number, self.clock.now_ms() + number, b"k", b"%d" % (sequence + number) + b"." * size)
            for number in range(count)
        ]
        batch = build_batch(records, codec=codec, producer_id=9, producer_epoch=0, base_sequence=sequence)
        return memoryview(batch)

    @rule(count=st.integers(1, 5), size=st.integers(0, 150), codec=st.sampled_from(Codec))
    def append(self, count, size, codec) -> None:
        batch = self.batch(count, size, codec, self.sequence)
        appended = self.log.append(batch, leader_epoch=0)
        assert appended.base_offset == len(self.records)
        self.records += [(record.timestamp, record.value or b"") for record in iterate_records(batch)]
        assert self.log.append(batch, leader_epoch=0) == appended._replace(duplicate=True)
        self.sequence += count

    @rule(room=st.integers(0, 100))
    def append_to_a_full_disk(self, room) -> None:
        self.disk.fill(room)
        try:
            self.log.append(self.batch(2, 100, Codec.NONE, self.sequence), leader_epoch=0)
        except KafkaError as refusal:
            assert refusal.error is Error.KAFKA_STORAGE_ERROR
        else:
            raise AssertionError("the disk was full")
        finally:
            self.disk.free()

    @rule(offset=st.integers(0, 200), max_bytes=st.integers(0, 2000))
    def read(self, offset, max_bytes) -> None:
        start, end = self.log.log_start_offset, len(self.records)
        if not start <= offset <= end:
            return
        piece = self.log.read(offset, max_bytes, min_one_batch=True)
        if offset == end:
            assert piece is None
            return
        batches = list(iterate_batches(piece.read()))
        assert sum(header.size for header, _ in batches) == len(piece)
        assert len(piece) <= max_bytes or len(batches) == 1
        assert batches[0][0].base_offset <= offset <= batches[0][0].last_offset
        for _, batch in batches:
            check_batch(batch)
            for record in iterate_records(batch):
                assert (record.timestamp, record.value) == self.records[record.offset]

    @rule(milliseconds=st.integers(0, 100_000))
    def time_passes(self, milliseconds) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def apply_retention(self) -> None:
        for path in self.log.apply_retention():
            path.unlink()

    @precondition(lambda self: self.records)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share) -> None:
        self.log.delete_records_before(int(share * len(self.records)))

    @rule()
    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def let_go_of_files(self) -> None:
        self.log.abandon()

    @rule()
    def restart(self) -> None:
        start = self.log.log_start_offset
        self.log.close()
        self.open(clean=True, recovery_point=self.log.recovery_point, log_start_offset=start)

    @rule(torn=st.binary(max_size=80))
    def crash(self, torn) -> None:
        """Killed in the middle of a write: half a batch is there that was never acknowledged."""
        start = self.log.log_start_offset
        self.log.abandon()
        with self.log.segments[-1].path(".log").open("ab") as file:
            file.write(torn)
        self.open(recovery_point=self.log.recovery_point, log_start_offset=start)

    @rule(later=st.integers(0, 100_000))
    def find_by_timestamp(self, later) -> None:
        start = self.log.log_start_offset
        if start == len(self.records):
            return
        timestamp = self.records[start][0] + later
        expected = next(
            (offset for offset in range(start, len(self.records)) if self.records[offset][0] >= timestamp),
            None,
        )
        found = first_at_or_after(self.log, timestamp)
        assert (found.offset if found else None) == expected

    @invariant()
    def offsets_continue(self) -> None:
        assert self.log.log_end_offset == len(self.records)
        assert self.log.log_start_offset <= self.log.log_end_offset
        assert self.log.size == sum(segment.size for segment in self.log.segments)
        sizes = [segment.path(".log").stat().st_size for segment in self.log.segments]
        assert sum(sizes) == self.log.size


TestLogLife = LogLife.TestCase
TestLogLife.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
