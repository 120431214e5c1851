"""Raw transactions for tests: producers of batches and markers, and a reader of committed records."""

from collections.abc import Iterable

from millrace.clock import Clock
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.log import Appended, Log
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import TRANSACTIONAL_BIT, Record, build_batch, iterate_batches, iterate_records


def transactional_batch(
    values: Iterable[bytes],
    now_ms: int,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    key: bytes | None = b"k",
) -> memoryview:
    """A batch as a transactional producer sends it for one partition."""
    records = [Record(number, now_ms, key, value) for number, value in enumerate(values)]
    batch = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL_BIT,
    )
    return memoryview(batch)


class TransactionalProducer:
    """A producer of one log that numbers its batches and writes its own markers."""

    def __init__(self, log: Log, clock: Clock, producer_id: int = 1, epoch: int = 0) -> None:
        self.log = log
        self.clock = clock
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, *values: bytes, sequence: int | None = None, key: bytes | None = b"k") -> Appended:
        batch = transactional_batch(
            values,
            self.clock.now_ms(),
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence if sequence is None else sequence,
            key=key,
        )
        appended = self.log.append(batch, 0, AppendOrigin.TRANSACTION)
        if sequence is None:
            self.sequence += len(values)
        return appended

    def commit(self, coordinator_epoch: int = 0) -> Appended:
        return self.end(committed=True, coordinator_epoch=coordinator_epoch)

    def abort(self, coordinator_epoch: int = 0) -> Appended:
        return self.end(committed=False, coordinator_epoch=coordinator_epoch)

    def end(self, *, committed: bool, coordinator_epoch: int = 0, bump: bool = False) -> Appended:
        """With bump as in transaction version 2: the marker and the records after it have the next epoch."""
        if bump:
            self.epoch += 1
            self.sequence = 0
        return self.log.append_marker(
            self.producer_id,
            self.epoch,
            committed,
            coordinator_epoch,
            0,
            transaction_version=2 if bump else 1,
        )


def read_committed(log: Log, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Offsets and values that a read_committed consumer gets, by fetches without a session."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    stable = log.last_stable_offset
    while (piece := log.read(offset, max_bytes, min_one_batch=True, up_to=stable)) is not None:
        aborted = log.aborted_transactions(offset, piece.next_offset)
        wanted = _without_aborted(
            piece.read(), [(entry.producer_id, entry.first_offset) for entry in aborted]
        )
        found += [(at, value) for at, value in wanted if at >= offset]
        offset = piece.next_offset
    return found


def _without_aborted(content: bytes, aborted: list[tuple[int, int]]) -> Iterable[tuple[int, bytes | None]]:
    """Filter as clients do: a producer's batches are aborted from the listed offset to its abort marker."""
    upcoming = sorted(aborted, key=lambda entry: entry[1])
    skipped: set[int] = set()
    for header, batch in iterate_batches(content):
        while upcoming and upcoming[0][1] <= header.last_offset:
            skipped.add(upcoming.pop(0)[0])
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and not marker.committed:
                skipped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in skipped:
            for record in iterate_records(batch):
                yield record.offset, record.value
