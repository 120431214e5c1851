"""Compaction of transactions: aborted records go, markers follow them, open transactions wait."""

import pytest

from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage import swap
from millrace.storage.cleanable import survey
from millrace.storage.compaction import Compaction, Job, Source
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import BatchHeader, Record, build_batch, iterate_batches, iterate_records

from ..transactional import TransactionalProducer, read_committed

DAY_MS = 86_400_000
COMPACTED = LogConfig(cleanup_policy=("compact",), delete_retention_ms=DAY_MS)


class CompactedLog:
    """A log and its producers, compacted in this process as the broker has it done in another."""

    def __init__(self, log: Log, clock: ManualClock) -> None:
        self.log = log
        self.clock = clock

    def producer(self, producer_id: int) -> TransactionalProducer:
        return TransactionalProducer(self.log, self.clock, producer_id)

    def put(self, key: bytes, value: bytes | None) -> None:
        """A record outside of any transaction."""
        record = Record(0, self.clock.now_ms(), key, value)
        self.log.append(memoryview(build_batch([record])), 0)

    def compact(self, first_dirty_offset: int = 0) -> None:
        """Seal what there is and clean it."""
        self.put(b"end", b"")
        self.log.roll()
        self.log.flush()
        cleanable = survey(self.log, first_dirty_offset, self.clock.now_ms())
        job = Job(
            directory=str(self.log.directory),
            segments=[
                Source(segment.base_offset, segment.size, 0, 0)
                for segment in self.log.segments
                if segment.base_offset < cleanable.first_uncleanable_offset
            ],
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            segment_bytes=1 << 20,
            segment_index_bytes=1 << 20,
            index_interval_bytes=4096,
            delete_retention_ms=DAY_MS,
            max_keys=1000,
            max_bytes_per_second=1e300,
            now_ms=self.clock.now_ms(),
            producers=[(p.producer_id, p.last_offset) for p in self.log.active_producers() if p.batches],
            bare_producers=[(p.producer_id, p.epoch) for p in self.log.active_producers() if not p.batches],
            aborted=self.log.aborted_transactions(0, cleanable.first_uncleanable_offset),
        )
        for replacement in Compaction(Job.from_json(job.to_json())).run():
            swap.stage(self.log.directory, replacement.base_offset, Disk())
            retired = self.log.replace_segments(replacement.replaces, replacement.base_offset)
            assert retired is not None
            for path in retired:
                path.unlink()

    def batches(self) -> list[tuple[BatchHeader, memoryview]]:
        found = []
        offset = 0
        while (piece := self.log.read(offset, 1 << 20, min_one_batch=True)) is not None:
            found += iterate_batches(piece.read())
            offset = piece.next_offset
        return found

    def values(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records that are stored."""
        return [
            (record.key, record.value)
            for header, batch in self.batches()
            if not header.is_control
            for record in iterate_records(batch)
            if record.key != b"end"
        ]

    def markers(self) -> list[tuple[int, bool]]:
        """Producer and outcome of all markers that are stored."""
        return [
            (header.producer_id, marker.committed)
            for header, batch in self.batches()
            if header.is_control and (marker := read_end_marker(batch)) is not None
        ]

    def committed(self) -> list[bytes | None]:
        return [value for _, value in read_committed(self.log) if value]


@pytest.fixture
def compacted(open_log, clock) -> CompactedLog:
    return CompactedLog(open_log(COMPACTED), clock)


def expire_producers(compacted: CompactedLog) -> None:
    """Let producers be forgotten, so that no batch has to stay for their sequence numbers."""
    compacted.clock.advance(2 * DAY_MS)
    compacted.log.apply_retention()


def test_aborted_records_go_and_committed_ones_stay(compacted: CompactedLog) -> None:
    one, two = compacted.producer(1), compacted.producer(2)
    one.send(b"1", key=b"a")
    two.send(b"2", key=b"b")
    one.commit()
    two.abort()
    compacted.compact()
    assert compacted.values() == [(b"a", b"1")]
    assert compacted.committed() == [b"1"]


def test_an_aborted_record_replaces_nothing(compacted: CompactedLog) -> None:
    compacted.put(b"a", b"old")
    producer = compacted.producer(1)
    producer.send(b"new", key=b"a")
    producer.abort()
    compacted.compact()
    assert compacted.values() == [(b"a", b"old")]


def test_a_committed_record_replaces_what_was_before(compacted: CompactedLog) -> None:
    compacted.put(b"a", b"old")
    producer = compacted.producer(1)
    producer.send(b"new", key=b"a")
    producer.commit()
    compacted.compact()
    assert compacted.values() == [(b"a", b"new")]


def test_nothing_past_the_first_open_transaction_is_compacted(compacted: CompactedLog) -> None:
    compacted.put(b"a", b"1")
    compacted.put(b"a", b"2")
    compacted.log.roll()
    producer = compacted.producer(1)
    producer.send(b"open", key=b"b")
    compacted.put(b"a", b"3")
    compacted.put(b"a", b"4")
    compacted.compact()
    assert compacted.values() == [(b"a", b"2"), (b"b", b"open"), (b"a", b"3"), (b"a", b"4")]
    producer.commit()
    compacted.compact()
    assert compacted.values() == [(b"b", b"open"), (b"a", b"4")]


def test_a_marker_stays_while_anything_of_its_transaction_does(compacted: CompactedLog) -> None:
    producer = compacted.producer(1)
    producer.send(b"1", key=b"a")
    producer.commit()
    for _ in range(3):
        compacted.compact()
        compacted.clock.advance(2 * DAY_MS)
    assert compacted.markers() == [(1, True)]
    assert compacted.committed() == [b"1"]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_goes_some_time_after_its_transaction(compacted: CompactedLog, committed: bool) -> None:
    producer = compacted.producer(1)
    producer.send(b"1", key=b"a")
    producer.end(committed=committed)
    compacted.put(b"a", b"2")
    expire_producers(compacted)
    compacted.compact()
    # The transaction's batch was there when this pass began.
    assert compacted.markers() == [(1, committed)]
    compacted.compact()
    assert compacted.markers() == [(1, committed)]
    (header,) = [header for header, _ in compacted.batches() if header.is_control]
    assert header.delete_horizon_ms == compacted.clock.now_ms() + DAY_MS
    compacted.clock.advance(DAY_MS - 1)
    compacted.compact()
    assert compacted.markers() == [(1, committed)]
    compacted.clock.advance(1)
    compacted.compact()
    assert compacted.markers() == []
    assert compacted.committed() == [b"2"]


def test_an_aborted_transaction_is_told_of_until_its_marker_may_go(compacted: CompactedLog) -> None:
    log = compacted.log
    producer = compacted.producer(1)
    producer.send(b"1", key=b"a")
    producer.abort()
    producer.send(b"2", key=b"b")
    producer.commit()
    expected = log.aborted_transactions(0, log.log_end_offset)
    compacted.compact()
    assert log.aborted_transactions(0, log.log_end_offset) == expected
    assert compacted.committed() == [b"2"]
    compacted.compact()
    # Were the entry to outlive the marker, the producer's next transaction would seem aborted.
    assert log.aborted_transactions(0, log.log_end_offset) == []
    compacted.clock.advance(DAY_MS)
    compacted.compact()
    assert compacted.markers() == [(1, True)]
    assert compacted.committed() == [b"2"]


def test_an_active_producers_last_aborted_batch_stays_empty(compacted: CompactedLog) -> None:
    producer = compacted.producer(1)
    producer.send(b"1", key=b"a")
    producer.abort()
    compacted.compact()
    (header,) = [
        header for header, _ in compacted.batches() if header.is_transactional and not header.is_control
    ]
    assert (header.record_count, header.last_sequence) == (0, 0)
    compacted.compact()
    assert compacted.markers() == [(1, False)]


def test_the_marker_that_alone_knows_a_producers_epoch_stays_empty(compacted: CompactedLog) -> None:
    producer = compacted.producer(1)
    producer.epoch = 5
    producer.abort()
    compacted.compact()
    compacted.clock.advance(DAY_MS)
    compacted.compact()
    headers = [header for header, _ in compacted.batches() if header.is_control]
    assert [(header.producer_epoch, header.record_count) for header in headers] == [(5, 0)]
    expire_producers(compacted)
    compacted.compact()
    assert [header for header, _ in compacted.batches() if header.is_control] == []


def test_transactions_across_segments_are_followed(compacted: CompactedLog) -> None:
    one, two = compacted.producer(1), compacted.producer(2)
    for number in range(6):
        one.send(b"%d" % number, key=b"one-%d" % number)
        two.send(b"%d" % number, key=b"two-%d" % number)
        compacted.log.roll()
    one.abort()
    compacted.log.roll()
    two.commit()
    compacted.compact()
    assert compacted.committed() == [b"%d" % number for number in range(6)]
    assert [key for key, _ in compacted.values()] == [b"two-%d" % number for number in range(6)]


def test_a_later_pass_tells_an_earlier_abort_from_a_later_commit(compacted: CompactedLog) -> None:
    """The dirty part starts behind an abort marker of the same producer."""
    producer = compacted.producer(1)
    compacted.put(b"a", b"old")
    producer.send(b"x", key=b"a")
    producer.abort()
    compacted.compact()
    first_dirty = compacted.log.segments[-1].base_offset
    producer.send(b"new", key=b"a")
    producer.commit()
    compacted.compact(first_dirty)
    assert compacted.values() == [(b"a", b"new")]


def test_what_is_compacted_survives_a_crash(compacted: CompactedLog, open_log) -> None:
    one, two = compacted.producer(1), compacted.producer(2)
    one.send(b"1", key=b"a")
    two.send(b"2", key=b"b")
    one.abort()
    two.commit()
    compacted.compact()
    one.send(b"3", key=b"c")
    expected = compacted.committed()
    compacted.log.abandon()
    reopened = open_log(COMPACTED)
    compacted.log = one.log = reopened
    assert compacted.committed() == expected == [b"2"]
    one.commit()
    assert compacted.committed() == [b"2", b"3"]


def test_an_index_of_nothing_takes_the_place_of_the_old_one(compacted: CompactedLog) -> None:
    """A crash in the middle of the swap must not leave the old one beside the new segment."""
    producer = compacted.producer(1)
    producer.send(b"1", key=b"a")
    producer.abort()
    producer.send(b"2", key=b"b")
    producer.commit()
    compacted.compact()
    assert (compacted.log.directory / f"{0:020d}.txnindex").stat().st_size == 34
    compacted.compact()
    assert (compacted.log.directory / f"{0:020d}.txnindex").stat().st_size == 0
    assert compacted.log.segments[0].transaction_index is None
