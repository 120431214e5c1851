"""Random lives of a log that is cut back now and then, against a log that is copied batch by batch."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.wire.records import Record, build_batch

from ..transactional import transactional_batch
from .log_state import batches_of, state_of

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(1, 3)


class TruncatedLife(RuleBasedStateMachine):
    """Appends of every kind, rolls, flushes, cuts, restarts, kills and power cuts."""

    @initialize()
    def begin(self) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.leader_epoch = 0
        self.copies = 0
        self.open()

    def open(self, **options) -> None:
        directory = Path(self.home.name) / "model-0"
        self.log = Log.open(directory, CONFIG, clock=self.clock, disk=self.disk, **options)

    def reopen(self, **options) -> None:
        self.open(recovery_point=self.log.recovery_point, **options)

    def teardown(self) -> None:
        self.log.abandon()
        self.home.cleanup()

    # Appending

    def records(self, count: int, size: int) -> list[Record]:
        now_ms = self.clock.now_ms()
        return [Record(number, now_ms + number, b"k", b"v" * size) for number in range(count)]

    @rule(count=st.integers(1, 3), size=st.integers(0, 150))
    def append(self, count, size) -> None:
        self.log.append(memoryview(build_batch(self.records(count, size))), self.leader_epoch)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 100))
    def append_idempotently(self, producer_id, count, size) -> None:
        known = self.log.producers.get(producer_id)
        batch = build_batch(
            self.records(count, size),
            producer_id=producer_id,
            producer_epoch=0 if known is None else known.epoch,
            base_sequence=0 if known is None else known.next_sequence,
        )
        try:
            self.log.append(memoryview(batch), self.leader_epoch)
        except KafkaError as refusal:
            assert refusal.error is Error.INVALID_TXN_STATE

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 100))
    def append_in_a_transaction(self, producer_id, count, size) -> None:
        known = self.log.producers.get(producer_id)
        batch = transactional_batch(
            [b"v" * size] * count,
            self.clock.now_ms(),
            producer_id=producer_id,
            epoch=0 if known is None else known.epoch,
            sequence=0 if known is None else known.next_sequence,
        )
        self.log.append(batch, self.leader_epoch, AppendOrigin.TRANSACTION)

    @rule(producer_id=PRODUCERS, committed=st.booleans(), bump=st.booleans())
    def end_a_transaction(self, producer_id, committed, bump) -> None:
        known = self.log.producers.get(producer_id)
        epoch = 0 if known is None else known.epoch + bump
        self.log.append_marker(producer_id, epoch, committed, 0, self.leader_epoch)

    @rule()
    def another_leader(self) -> None:
        self.leader_epoch += 1

    @rule(milliseconds=st.integers(-5000, 5000))
    def time_passes(self, milliseconds) -> None:
        self.clock.advance(milliseconds)

    # Cutting

    @rule(share=st.floats(0, 1))
    def truncate(self, share) -> None:
        offset = int(share * self.log.log_end_offset)
        kept = [bytes(batch) for header, batch in batches_of(self.log) if header.last_offset < offset]
        for path in self.log.truncate_to(offset):
            path.unlink()
        assert [bytes(batch) for _, batch in batches_of(self.log)] == kept
        self.leader_epoch += 1

    # The rest of a log's life

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def release_files(self) -> None:
        for _ in range(2):
            self.log.release_idle_files()

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    @rule()
    def kill(self) -> None:
        self.log.abandon()
        self.reopen()

    @rule()
    def lose_power(self) -> None:
        """Derived files that no flush has forced to disk are gone."""
        self.log.abandon()
        for path in self.log.directory.iterdir():
            if (
                path.suffix in (".index", ".timeindex", ".snapshot")
                and int(path.stem) >= self.log.recovery_point
            ):
                path.unlink()
        self.reopen()

    @invariant()
    def is_the_log_of_its_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        self.copies += 1
        directory = Path(self.home.name) / f"copy{self.copies}-0"
        copy = Log.open(directory, CONFIG, clock=self.clock, disk=self.disk)
        for _, batch in batches_of(self.log):
            copy.append_as_follower(memoryview(bytes(batch)), self.leader_epoch)
        assert state_of(self.log) == state_of(copy)
        copy.abandon()


TestTruncatedLife = TruncatedLife.TestCase
TestTruncatedLife.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
