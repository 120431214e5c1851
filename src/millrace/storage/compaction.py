"""Compaction of one log, as pure work on segment files: run as `python -m millrace.storage.compaction`.

The process reads one job (a JSON line) on its standard input and writes `.cleaned` files beside the segments.
It answers each finished file with a JSON line and waits for a newline before the next, so that the broker can
swap the file in meanwhile; the last line tells what the pass did. It never touches the segments themselves:
whenever it dies, the log is as it was.
"""

import json
import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from millrace.errors import KafkaError
from millrace.storage.cleaned_segment import CleanedSegment, remove_cleaned_files
from millrace.storage.cleaned_transactions import CleanedTransactions
from millrace.storage.rebuilt_batch import emptied, stamp_horizon, thin_out
from millrace.storage.record_filter import LatestOffsets, keep_latest, note_keys
from millrace.storage.transaction_index import AbortedTransaction
from millrace.wire.compression import Codec
from millrace.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    check_batch,
    payload_of,
    read_header,
)

READ_BYTES = 1 << 20
NICENESS = 10
SHORTEST_REST_SECONDS = 0.05
# Indexes hold offsets relative to the segment's base in 32 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Source:
    """A sealed segment to clean."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int


@dataclass(frozen=True, slots=True)
class Job:
    """The segments to clean: every one from the log's first up to the first uncleanable offset."""

    directory: str
    segments: list[Source]
    first_dirty_offset: int
    first_uncleanable_offset: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    max_keys: int
    max_bytes_per_second: float
    now_ms: int
    # Each active producer's id and the offset of the last record it wrote.
    producers: list[tuple[int, int]]
    # The id and epoch of those that have nothing in the log but a marker of that epoch.
    bare_producers: list[tuple[int, int]] = field(default_factory=list)
    # Those with records in any of the segments.
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        fields = json.loads(text)
        fields["segments"] = [Source(**segment) for segment in fields["segments"]]
        fields["producers"] = [(producer_id, offset) for producer_id, offset in fields["producers"]]
        fields["bare_producers"] = [(producer_id, epoch) for producer_id, epoch in fields["bare_producers"]]
        fields["aborted"] = [AbortedTransaction(*transaction) for transaction in fields["aborted"]]
        return cls(**fields)

    def end_offset_of(self, number: int) -> int:
        """End of the offsets of the segment at this place in the list, as its successor shows it."""
        following = number + 1
        return (
            self.segments[following].base_offset
            if following < len(self.segments)
            else self.first_uncleanable_offset
        )


@dataclass(frozen=True, slots=True)
class Replacement:
    """A finished `.cleaned` segment and the base offsets of the segments it stands for."""

    base_offset: int
    replaces: list[int]


@dataclass(slots=True)
class Pass:
    """The result of a pass over a log; the next pass starts at `end_offset`."""

    end_offset: int = 0
    keys: int = 0
    dedupe_buffer_full: bool = False
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    seconds: float = 0.0
    # Batches that cannot be read and stay as they are, and what is wrong with the first of them.
    unreadable_batches: int = 0
    unreadable_reason: str = ""


class Group:
    """Neighbouring segments on their way into one."""

    def __init__(self, directory: Path, first: Source, index_interval_bytes: int) -> None:
        self.sources: list[Source] = []
        self.cleaned = CleanedSegment(directory, first.base_offset, index_interval_bytes)
        self._base_offset = first.base_offset
        self._changed = False
        # The last batch, if all its records were dropped: it stays, empty, unless another one follows.
        self._dropped: tuple[BatchHeader, bytes] | None = None

    def has_room_for(self, source: Source, end_offset: int, job: Job) -> bool:
        """Whether a segment fits in as well, even if all of it stays."""
        cleaned = self.cleaned
        return (
            cleaned.size + source.size <= job.segment_bytes
            and cleaned.index_size + source.index_size <= job.segment_index_bytes
            and cleaned.time_index_size + source.time_index_size <= job.segment_index_bytes
            and end_offset - 1 - self._base_offset <= MAX_RELATIVE_OFFSET
        )

    def add(self, header: BatchHeader, batch: bytes, kept: bytes | None) -> None:
        """Add the next batch in the form that was kept of it."""
        self._changed = self._changed or self._dropped is not None
        self._dropped = None
        if kept is None:
            self._dropped = header, batch
        elif kept is batch:
            self.cleaned.append(header, batch)
        else:
            self._changed = True
            self.cleaned.append(read_header(kept), kept)

    def finish(self, modified_ns: int) -> Replacement | None:
        """Complete the files; returns None and leaves no files if nothing would change."""
        if self._dropped is not None:
            # The last batch shows where the new segment's offsets end. After a crash that tells which
            # segments it replaces, and the log's last offset survives even when its record does not.
            header, batch = self._dropped
            self.add(header, batch, emptied(header, batch))
        if len(self.sources) == 1 and not self._changed:
            self.cleaned.discard()
            return None
        self.cleaned.seal(modified_ns)
        return Replacement(self._base_offset, [source.base_offset for source in self.sources])


class Compaction:
    """One pass over one log: map the dirty part's keys, then rewrite the log group by group."""

    def __init__(self, job: Job) -> None:
        self.done = Pass(end_offset=job.first_dirty_offset)
        # The file being read, for error messages.
        self.reading = job.directory
        self._job = job
        self._directory = Path(job.directory)
        self._latest_offsets: LatestOffsets = {}
        # By base offset.
        self._unreadable: set[int] = set()
        self._surviving_offsets: list[int] = []
        self._started = time.monotonic()
        self._bytes_moved = 0
        self._last_offset_of_producer = dict(job.producers)
        self._epoch_of_bare_producer = dict(job.bare_producers)
        self._transactions = CleanedTransactions(job.aborted)

    def run(self) -> Iterator[Replacement]:
        """Clean, yielding each replacement as its files are complete and synced."""
        remove_cleaned_files(self._directory)
        self._map_dirty_keys()
        number = 0
        while number < len(self._job.segments) and self._is_reached(number):
            replacement, number = self._clean_group(number)
            if replacement is not None:
                yield replacement
        self.done.seconds = time.monotonic() - self._started

    def _is_reached(self, number: int) -> bool:
        return self._job.segments[number].base_offset < self.done.end_offset

    def _map_dirty_keys(self) -> None:
        """Map keys from the first dirty offset on, until the range ends or the map is full."""
        job, done = self._job, self.done
        transactions = CleanedTransactions(
            transaction for transaction in job.aborted if transaction.last_offset >= job.first_dirty_offset
        )
        for number, source in enumerate(job.segments):
            if job.end_offset_of(number) <= job.first_dirty_offset:
                continue
            for header, batch in self._batches_of(source):
                if header.last_offset < job.first_dirty_offset:
                    continue
                # Whole batches only: at least one per pass, so every pass makes progress.
                if len(self._latest_offsets) >= job.max_keys:
                    done.dedupe_buffer_full = True
                    break
                self._map_batch(header, batch, transactions)
                done.end_offset = header.next_offset
            if done.dedupe_buffer_full:
                break
            done.end_offset = job.end_offset_of(number)
        done.keys = len(self._latest_offsets)
        self._surviving_offsets = sorted(self._latest_offsets.values())

    def _map_batch(self, header: BatchHeader, batch: bytes, transactions: CleanedTransactions) -> None:
        if header.is_control:
            transactions.end(header, batch)
        # Aborted records replace nothing.
        elif not transactions.is_aborted(header):
            try:
                note_keys(payload_of(batch, header), header, self._latest_offsets)
            except KafkaError as fault:
                self._set_aside(header, fault)

    def _set_aside(self, header: BatchHeader, fault: KafkaError) -> None:
        """Keep an unreadable batch as it is: its checksum is right, so its producer sent it broken.

        It replaces no records of others. One such batch must not end the compaction of a log.
        """
        if not self._unreadable:
            self.done.unreadable_reason = f"the batch at offset {header.base_offset}: {fault.message}"
        self._unreadable.add(header.base_offset)
        self.done.unreadable_batches = len(self._unreadable)

    def _clean_group(self, number: int) -> tuple[Replacement | None, int]:
        """Clean the segment at a place in the job, and its successors as long as they fit in.

        Returns their replacement, if they need one, and the place of the next segment.
        """
        job = self._job
        group = Group(self._directory, job.segments[number], job.index_interval_bytes)
        try:
            while not group.sources or (
                number < len(job.segments)
                and self._is_reached(number)
                and group.has_room_for(job.segments[number], job.end_offset_of(number), job)
            ):
                self._clean_segment(job.segments[number], group)
                number += 1
            return group.finish(self._path_of(group.sources[-1]).stat().st_mtime_ns), number
        except BaseException:
            group.cleaned.discard()
            raise

    def _clean_segment(self, source: Source, group: Group) -> None:
        group.sources.append(source)
        if self._path_of(source, ".txnindex").exists():
            group.cleaned.start_transaction_index()
        for header, batch in self._batches_of(source):
            if header.is_control:
                kept = self._clean_marker(header, batch, group)
            else:
                kept = self._clean_batch(header, batch)
            if kept is None and self._ends_a_producer(header):
                kept = emptied(header, batch)
            group.add(header, batch, kept)
            self.done.records_read += header.record_count
            self.done.bytes_read += len(batch)
            if kept is not None:
                self.done.bytes_kept += len(kept)
                self._throttle(len(kept))

    def _ends_a_producer(self, header: BatchHeader) -> bool:
        """Whether an active producer's sequence number, or epoch, is known from this batch only."""
        if header.is_control and header.producer_id in self._epoch_of_bare_producer:
            return self._epoch_of_bare_producer[header.producer_id] == header.producer_epoch
        return self._last_offset_of_producer.get(header.producer_id) == header.last_offset

    def _clean_batch(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """The batch as it stays in the log: the same object if no record is dropped, None if all are."""
        if self._transactions.is_aborted(header):
            return None
        is_beyond = header.base_offset >= self.done.end_offset
        if not is_beyond and header.base_offset not in self._unreadable:
            try:
                return None if self._is_superseded(header) else self._thinned(header, batch)
            except KafkaError as fault:
                self._set_aside(header, fault)
        self.done.records_kept += header.record_count
        return batch

    def _clean_marker(self, header: BatchHeader, batch: bytes, group: Group) -> bytes | None:
        """A marker is dropped some time after the last batch of its transaction, as tombstones are."""
        ended = self._transactions.end(header, batch)
        if ended.aborted is not None:
            group.cleaned.add_aborted(ended.aborted)
        now_ms, horizon_ms = self._job.now_ms, header.delete_horizon_ms
        is_past = horizon_ms is not None and horizon_ms <= now_ms
        if ended.is_gone and (is_past or not header.record_count):
            return None
        self.done.records_kept += header.record_count
        if ended.is_gone and horizon_ms is None:
            return stamp_horizon(batch, Codec.NONE, now_ms + self._job.delete_retention_ms)
        return batch

    def _thinned(self, header: BatchHeader, batch: bytes) -> bytes | None:
        horizon_ms = header.delete_horizon_ms
        survivors = keep_latest(
            payload_of(batch, header),
            header,
            self._latest_offsets,
            drop_tombstones=horizon_ms is not None and horizon_ms <= self._job.now_ms,
        )
        self.done.records_kept += survivors.record_count
        if not survivors.record_count:
            return None
        if survivors.has_tombstones and horizon_ms is None:
            horizon_ms = self._job.now_ms + self._job.delete_retention_ms
            return stamp_horizon(thin_out(header, survivors, Codec.NONE), header.codec, horizon_ms)
        if survivors.record_count == header.record_count:
            return batch
        return thin_out(header, survivors, header.codec)

    def _is_superseded(self, header: BatchHeader) -> bool:
        """Whether the map alone shows that no record stays, without reading the records."""
        if header.base_offset < self._job.first_dirty_offset:
            return False
        offsets = self._surviving_offsets
        following = bisect_left(offsets, header.base_offset)
        return following == len(offsets) or offsets[following] > header.last_offset

    def _batches_of(self, source: Source) -> Iterator[tuple[BatchHeader, bytes]]:
        path = self._path_of(source)
        self.reading = str(path)
        for header, batch in read_batches(path, source.size):
            self._throttle(len(batch))
            yield header, batch

    def _throttle(self, amount: int) -> None:
        """Wait until the pass is allowed to have moved this many bytes."""
        self._bytes_moved += amount
        due = self._started + self._bytes_moved / self._job.max_bytes_per_second
        rest_seconds = due - time.monotonic()
        if rest_seconds > SHORTEST_REST_SECONDS:
            time.sleep(rest_seconds)

    def _path_of(self, source: Source, suffix: str = ".log") -> Path:
        return self._directory / f"{source.base_offset:020d}{suffix}"


def read_batches(path: Path, size: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch in the first `size` bytes of a segment, checked."""
    with path.open("rb", buffering=0) as file:
        position = 0
        wanted = READ_BYTES
        while position < size:
            chunk = os.pread(file.fileno(), min(wanted, size - position), position)
            if len(chunk) < min(wanted, size - position):
                raise CorruptBatch(f"the file ends before its {size} bytes")
            wanted = READ_BYTES
            start = 0
            while len(chunk) - start >= HEADER_BYTES:
                batch_size = read_header(chunk, start).size
                if start + batch_size > len(chunk):
                    wanted = max(READ_BYTES, batch_size)
                    break
                batch = chunk[start : start + batch_size]
                yield check_batch(batch), batch
                start += batch_size
            if start == 0 and (wanted <= len(chunk) or position + wanted > size):
                raise CorruptBatch(f"no whole batch at position {position}")
            position += start


def _answer(kind: str, content: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps({kind: content}).encode() + b"\n")


def _follow_broker(acknowledged: threading.Semaphore) -> None:
    """Count the newlines that the broker sends; exit when the broker closes the pipe."""
    while received := os.read(sys.stdin.fileno(), 64):
        acknowledged.release(len(received))
    os._exit(1)


def _read_job() -> Job:
    # Unbuffered: bytes after the line belong to the thread that reads from the broker.
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(sys.stdin.fileno(), 1 << 16)
        if not part:
            raise EOFError("the job ended before its line did")
        line += part
    return Job.from_json(bytes(line))


def main() -> None:
    """Do the job on standard input."""
    os.nice(NICENESS)
    job = _read_job()
    acknowledged = threading.Semaphore(0)
    threading.Thread(target=_follow_broker, args=(acknowledged,), daemon=True).start()
    compaction = Compaction(job)
    try:
        for replacement in compaction.run():
            _answer("replacement", asdict(replacement))
            acknowledged.acquire()
    except FileNotFoundError as failure:
        _answer("gone", f"{failure.filename} is gone")
    except OSError as failure:
        _answer("disk", str(failure))
    except KafkaError as failure:
        _answer("corrupt", f"{compaction.reading}: {failure.message}")
    else:
        _answer("done", asdict(compaction.done))


if __name__ == "__main__":
    main()
