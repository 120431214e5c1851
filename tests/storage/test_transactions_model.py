"""Random lives of a log with several transactional producers, against a plain list of what was committed."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.wire.records import Record, build_batch

from ..transactional import TransactionalProducer, read_committed

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(0, 3)


class Written:
    """A record, and what became of its transaction: None while that is open."""

    def __init__(self, value: bytes, committed: bool | None) -> None:
        self.value = value
        self.committed = committed


class TransactionLife(RuleBasedStateMachine):
    """Transactions begin, grow, commit and abort, while the log rolls, flushes, restarts, crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.directory = Path(self.home.name) / "model-0"
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        # By offset; markers are no records.
        self.records: dict[int, Written] = {}
        self.open_transactions: dict[int, list[int]] = {}
        self.end_offset = self.number = 0
        self.open()
        self.producers = [TransactionalProducer(self.log, self.clock, number) for number in range(4)]

    def open(self, **options) -> None:
        self.log = Log.open(self.directory, CONFIG, clock=self.clock, disk=self.disk, **options)

    def reopen(self, **options) -> None:
        self.open(
            recovery_point=self.log.recovery_point, log_start_offset=self.log.log_start_offset, **options
        )
        for producer in self.producers:
            producer.log = self.log

    def teardown(self) -> None:
        self.log.abandon()
        self.home.cleanup()

    def values(self, count: int, size: int) -> list[bytes]:
        self.number += count
        return [b"%d." % (self.number + place) + b"x" * size for place in range(count)]

    @rule(number=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 150))
    def send(self, number, count, size) -> None:
        values = self.values(count, size)
        appended = self.producers[number].send(*values)
        assert appended.base_offset == self.end_offset
        for value in values:
            self.open_transactions.setdefault(number, []).append(self.end_offset)
            self.records[self.end_offset] = Written(value, None)
            self.end_offset += 1

    @rule(number=PRODUCERS, committed=st.booleans(), bump=st.booleans())
    def end(self, number, committed, bump) -> None:
        appended = self.producers[number].end(committed=committed, bump=bump)
        assert appended.base_offset == self.end_offset
        self.end_offset += 1
        for offset in self.open_transactions.pop(number, []):
            self.records[offset].committed = committed

    @rule(count=st.integers(1, 3), size=st.integers(0, 150))
    def send_plainly(self, count, size) -> None:
        values = self.values(count, size)
        records = [Record(place, self.clock.now_ms(), b"k", value) for place, value in enumerate(values)]
        self.log.append(memoryview(build_batch(records)), 0)
        for value in values:
            self.records[self.end_offset] = Written(value, committed=True)
            self.end_offset += 1

    @rule(number=PRODUCERS, room=st.integers(0, 60))
    def end_on_a_full_disk(self, number, room) -> None:
        self.disk.fill(room)
        try:
            self.producers[number].end(committed=False)
        except KafkaError as refusal:
            assert refusal.error is Error.KAFKA_STORAGE_ERROR
        else:
            raise AssertionError("the disk was full")
        finally:
            self.disk.free()

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

    @rule(share=st.floats(0, 1))
    def delete_records(self, share) -> None:
        # What is deleted is long on disk, and so is the snapshot that tells of it.
        self.log.flush()
        self.log.delete_records_before(int(share * self.end_offset))
        for path in self.log.apply_retention():
            path.unlink()

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
        """Indexes and snapshots that no flush has forced to disk are gone."""
        self.log.abandon()
        for path in self.directory.iterdir():
            if (
                path.suffix in (".index", ".timeindex", ".snapshot")
                and int(path.stem) > self.log.recovery_point
            ):
                path.unlink()
        for segment in self.log.segments:
            index = segment.path(".txnindex")
            if index.exists():
                kept = sum(
                    entry.last_offset < self.log.recovery_point for entry in _entries(self.log, segment)
                )
                index.write_bytes(index.read_bytes()[: kept * 34])
        self.reopen()

    @invariant()
    def the_log_is_stable_up_to_the_first_open_transaction(self) -> None:
        assert self.log.log_end_offset == self.end_offset
        firsts = [offsets[0] for offsets in self.open_transactions.values()]
        assert self.log.last_stable_offset == max(
            min(firsts, default=self.end_offset), self.log.log_start_offset
        )

    @invariant()
    def exactly_the_committed_records_are_read(self) -> None:
        start, stable = self.log.log_start_offset, self.log.last_stable_offset
        expected = [
            (offset, written.value)
            for offset, written in self.records.items()
            if start <= offset < stable and written.committed
        ]
        assert read_committed(self.log, max_bytes=300) == expected
        assert read_committed(self.log) == expected


def _entries(log, segment):
    index = segment.transaction_index
    found = []
    if index is not None:
        index.collect(0, 1 << 60, found)
    return found


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(deadline=None, max_examples=60, stateful_step_count=50)
