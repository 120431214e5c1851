"""One partition's log: appending, reading, rolling, flushing, retention."""

import logging
import random
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.disk import Bytes, Disk
from millrace.errors import Error, KafkaError
from millrace.metrics import Histogram
from millrace.storage import retention, timestamps
from millrace.storage.active_file import ActiveFile
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.append_rules import AppendRules
from millrace.storage.disk_failures import DiskFailures
from millrace.storage.file_slice import FileSlice
from millrace.storage.flush import Flush
from millrace.storage.indexes import TimeIndex
from millrace.storage.inspection import AcceptedBatch, Inspect, inspect, recompress, stamp
from millrace.storage.log_dir import doomed_path
from millrace.storage.log_flusher import LogFlusher
from millrace.storage.producer_recovery import ProducerRecovery
from millrace.storage.producer_snapshot import Snapshots
from millrace.storage.producer_state import Producer
from millrace.storage.recovery import LoadedLog, Loader
from millrace.storage.replicated_batches import replicated_batches
from millrace.storage.segment import MAX_RELATIVE_OFFSET, Segment
from millrace.storage.segment_list import SegmentList
from millrace.storage.transaction_index import AbortedTransaction, collect_aborted
from millrace.storage.validation import BROKERS_OWN, check_header
from millrace.wire.control_batch import EndMarker, build_end_marker, read_end_marker
from millrace.wire.records import MAGIC_POSITION, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, payload_of

logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
# Base offset, length, leader epoch: the start of a batch, which the broker writes.
_BATCH_START = struct.Struct(">qii")


class Appended(NamedTuple):
    """The place of a batch in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """One partition's log. Owned by the broker loop; not thread-safe."""

    __slots__ = (
        "_clock",
        "_config",
        "_disk",
        "_failures",
        "_flusher",
        "_has_aborted_transactions",
        "_high_watermark",
        "_leader_epochs",
        "_list",
        "_max_index_entries",
        "_producer_id_expiration_ms",
        "_reader",
        "_roll_jitter_ms",
        "_rules",
        "appended_batches",
        "appended_bytes",
        "appended_messages",
        "directory",
        "flush_times_ms",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "read_only_reason",
        "recovery_point",
        "segments",
        "topic",
        "truncations",
    )

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        clock: Clock,
        disk: Disk,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        clean: bool = False,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> "Log":
        """Open a partition's directory, creating it where missing and recovering it after an unclean stop.

        Without a high watermark every record counts as committed when it is appended. Safe to call in a
        thread. Raises RecoveryInterrupted soon after `interrupted` turns true.
        """
        try:
            loaded = Loader(directory, config, clock, disk, interrupted).load(
                recovery_point, log_start_offset, clean=clean, high_watermark=high_watermark
            )
        except OSError as failure:
            message = f"Cannot open the log {directory}: {failure.strerror or failure}"
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, message) from failure
        loaded.producers.expire(clock.now_ms() - producer_id_expiration_ms)
        # Thousands of idle partitions must not hold a file each.
        for segment in loaded.segments:
            segment.release_file()
        log = cls(directory, config, clock, disk, loaded)
        log.log_start_offset = max(log_start_offset, log.log_start_offset)
        log.set_high_watermark(high_watermark)
        log.recovery_point = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
        log._producer_id_expiration_ms = producer_id_expiration_ms
        return log

    def __init__(
        self, directory: Path, config: LogConfig, clock: Clock, disk: Disk, loaded: LoadedLog
    ) -> None:
        self.directory = directory
        self.topic, _, number = directory.name.rpartition("-")
        self.partition = int(number)
        self._clock = clock
        self._disk = disk
        # Of this broker as the leader, since the log was opened.
        self.appended_batches = self.appended_messages = self.appended_bytes = 0
        self.flush_times_ms: Histogram | None = None
        """Counts the times of flushes."""
        self.segments = loaded.segments
        self._list = SegmentList(directory, loaded.segments, disk)
        self._reader = self._list.reader
        self._failures = DiskFailures(directory, clock)
        self.log_start_offset = loaded.segments[0].base_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = 0
        self.truncations = 0
        """Times that the log was cut back: work on earlier content checks that this has not changed."""
        self.read_only_reason: str | None = None
        self._leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self._high_watermark: int | None = None
        self._has_aborted_transactions = self._list.has_aborted_transactions()
        self._producer_id_expiration_ms = PRODUCER_ID_EXPIRATION_MS
        snapshots = Snapshots(directory, disk, loaded.snapshot_offset)
        self._flusher = LogFlusher(snapshots, self.size, clock=clock, disk=disk)
        self.config = config

    @property
    def config(self) -> LogConfig:
        """The topic's configuration; setting it takes effect with the next append."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = AppendRules.of(config, self.directory.name)
        # The time index has the larger entries, and gets one more when the segment is sealed.
        self._max_index_entries = config.segment_index_bytes // TimeIndex.ENTRY.size - 1
        self._roll_jitter_ms = _pick_jitter(config)

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._list.size

    @property
    def end_position(self) -> int:
        """Position of the next batch in the active segment, unless it begins another one."""
        return self._list.active.size

    @property
    def latest_epoch(self) -> int | None:
        """The leader epoch of the newest batch."""
        return self._leader_epochs.latest if self._leader_epochs.entries else None

    @property
    def unflushed_messages(self) -> int:
        """Number of offsets that a power cut could cost."""
        return self.log_end_offset - self.recovery_point

    @property
    def awaits_flush(self) -> bool:
        """Whether a power cut could cost more than `flush.messages` allows."""
        return self.log_end_offset - self.recovery_point >= self._config.flush_messages

    @property
    def high_watermark(self) -> int:
        """End of the committed records: those on every in-sync replica."""
        watermark = self._high_watermark
        return self.log_end_offset if watermark is None else watermark

    def set_high_watermark(self, offset: int | None) -> None:
        """Move the end of the committed records; None lets it follow the log's end from now on."""
        if offset is not None:
            # Records before the start were committed once.
            offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        self._high_watermark = self.producers.high_watermark = offset

    @property
    def last_stable_offset(self) -> int:
        """Start of the first transaction without a committed end, else the high watermark."""
        watermark = self._high_watermark
        end = self.log_end_offset if watermark is None else watermark
        first_unstable_offset = self.producers.first_unstable_offset
        if first_unstable_offset is None or first_unstable_offset >= end:
            return end
        # The start of the transaction may have been deleted.
        return max(first_unstable_offset, self.log_start_offset)

    def active_producers(self) -> list[Producer]:
        """The idempotent and transactional producers this log still remembers."""
        return list(self.producers)

    # Appending

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        inspect: Inspect = inspect,
    ) -> Appended:
        """Append a batch; a refused one raises KafkaError and changes nothing.

        Where its records have to be looked into, `inspect` does it.
        """
        self.check_writable()
        rules = self._rules
        now_ms = self._clock.now_ms()
        header = check_header(records, rules, origin)
        batch: Bytes = records
        if not rules.stores_as_sent or header.max_timestamp > now_ms + rules.after_max_ms:
            header, batch = self._prepare(records, header, origin, now_ms, inspect)
        has_producer = header.producer_id != NO_PRODUCER_ID and origin is not AppendOrigin.MARKER
        if has_producer:
            repeated = self.producers.check(header, origin)
            if repeated is not None:
                append_time = repeated.timestamp if rules.is_log_append_time else NO_TIMESTAMP
                return Appended(
                    repeated.first_offset, repeated.last_offset, append_time, self.log_start_offset, True
                )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        length = len(batch)
        if length > self._config.segment_bytes:
            raise _too_large(length, self._config)
        start = _BATCH_START.pack(base_offset, header.length, leader_epoch)
        try:
            segment = self._segment_for(length, last_offset, header.max_timestamp, now_ms)
            segment.append(
                (start, memoryview(batch)[MAGIC_POSITION:]), length, last_offset, header.max_timestamp
            )
        except OSError as failure:
            raise self._failures.error("append to", failure) from failure
        self.log_end_offset = last_offset + 1
        self.appended_batches += 1
        self.appended_messages += header.last_offset_delta + 1
        self.appended_bytes += length
        if has_producer:
            self.producers.record(header, base_offset, now_ms)
        if leader_epoch > self._leader_epochs.latest:
            self._leader_epochs.assign(leader_epoch, base_offset)
        append_time = now_ms if rules.is_log_append_time else NO_TIMESTAMP
        return Appended(base_offset, last_offset, append_time, self.log_start_offset)

    def _prepare(
        self, records: memoryview, header: BatchHeader, origin: AppendOrigin, now_ms: int, inspect: Inspect
    ) -> AcceptedBatch:
        """The batch in the form that the topic prescribes."""
        rules = self._rules
        batch = AcceptedBatch(header, records)
        if origin not in BROKERS_OWN:
            if rules.concern_records(header, now_ms):
                batch = inspect(records, header, rules, now_ms)
        elif origin is AppendOrigin.COORDINATOR and rules.codec not in (None, header.codec):
            batch = recompress(payload_of(records, header), header, rules)
        return stamp(batch, now_ms) if rules.is_log_append_time else batch

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        *,
        transaction_version: int = 1,
    ) -> Appended:
        """End a producer's transaction; a refused end raises KafkaError and changes nothing."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        now_ms = self._clock.now_ms()
        marker = EndMarker(committed, coordinator_epoch)
        batch = build_end_marker(marker, producer_id, producer_epoch, now_ms)
        appended = self.append(memoryview(batch), leader_epoch, AppendOrigin.MARKER)
        self._note_marker(producer_id, producer_epoch, marker, appended.base_offset, now_ms)
        return appended

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> None:
        """Append batches as the leader has them: offsets, epochs and markers stay as they are.

        leader_epoch: the epoch of the leader that sent them. A refused batch raises KafkaError; those before
        it are in the log.
        """
        self.check_writable()
        now_ms = self._clock.now_ms()
        name = self.directory.name
        for header, batch in replicated_batches(records, self.log_end_offset, leader_epoch, name):
            last_offset, max_timestamp = header.last_offset, header.max_timestamp
            try:
                segment = self._segment_for(header.size, last_offset, max_timestamp, now_ms)
                segment.append((batch,), header.size, last_offset, max_timestamp)
            except OSError as failure:
                raise self._failures.error("append to", failure) from failure
            self.log_end_offset = last_offset + 1
            if header.leader_epoch > self._leader_epochs.latest:
                self._leader_epochs.assign(header.leader_epoch, header.base_offset)
            if header.is_control:
                marker = read_end_marker(batch)
                # Compaction may have emptied it.
                if marker is not None:
                    self._note_marker(
                        header.producer_id, header.producer_epoch, marker, header.base_offset, now_ms
                    )
            elif header.has_producer_id:
                self.producers.record(header, header.base_offset, now_ms)

    def _note_marker(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, offset: int, now_ms: int
    ) -> None:
        """Record a marker that is the log's last batch."""
        aborted = self.producers.end_transaction(producer_id, producer_epoch, marker, offset, now_ms)
        if aborted is not None:
            self._list.active.add_aborted(aborted)
            self._has_aborted_transactions = True

    def _segment_for(self, length: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, or a new one if this batch must not go into the active one."""
        active, config = self._list.active, self._config
        if (
            active.size + length > config.segment_bytes
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.index_entries >= self._max_index_entries
            or (
                active.size
                and active.age_at(max_timestamp, now_ms) > config.segment_ms - self._roll_jitter_ms
            )
        ):
            self.roll()
        return self._list.active

    def roll(self) -> None:
        """Seal the active segment and start the next one; an empty segment is left as it is."""
        sealed = self._list.active
        if not sealed.size:
            return
        now_ms = self._clock.now_ms()
        if sealed.active_file is not None and not sealed.active_file.is_in_place():
            self.report_missing(sealed.active_file)
            self.check_writable()
        # First what may fail; until it has succeeded nothing has changed.
        active = Segment.create(self.directory, self.log_end_offset, self._disk, self._config, now_ms)
        self._flusher.write_indexes(self, sealed.complete_indexes)
        sealed.release_unused_space()
        self._flusher.take_snapshot(self)
        self._list.add(active)
        self._roll_jitter_ms = _pick_jitter(self._config)

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, min_one_batch: bool, up_to: int | None = None
    ) -> FileSlice | None:
        """Whole batches from the one that holds offset on; None if there is nothing to send.

        With min_one_batch the first batch is given even where it alone is larger than max_bytes. Batches at
        or past the offset up_to are left out.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.directory.name} is not in [{self.log_start_offset}, {end_offset}]",
            )
        if up_to is None or up_to > end_offset:
            up_to = end_offset
        if offset >= up_to:
            return None
        try:
            return self._reader.read(offset, max_bytes, min_one_batch, up_to, end_offset)
        except OSError as failure:
            raise self._failures.error("read", failure) from failure

    def copy(self, piece: FileSlice) -> bytes:
        """The bytes of what was read."""
        try:
            return piece.read()
        except OSError as failure:
            raise self._failures.error("read", failure) from failure

    def segments_from(self, offset: int) -> list[Segment]:
        """The segments from the one that holds an offset on."""
        return self.segments[self._list.number_of(offset) :]

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in a range."""
        if not self._has_aborted_transactions:
            return []
        segments = self.segments_from(start_offset)
        with self.storing("read"):
            return collect_aborted(
                (segment.transaction_index for segment in segments), start_offset, end_offset
            )

    def batch_by_timestamp(self, timestamp_ms: int, start_offset: int) -> bytes | None:
        """The first batch from an offset on whose header promises a record that is not older than this."""
        with self.storing("read"):
            return timestamps.first_at_or_after(self.segments, timestamp_ms, start_offset)

    def newest_batch(self) -> bytes | None:
        """The first batch whose header has the largest timestamp; None if no record has a timestamp."""
        with self.storing("read"):
            return timestamps.latest(self.segments)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to the given one and the offset where it ended; (-1, -1) where unknown."""
        return self._leader_epochs.end_offset(leader_epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset, -1 where unknown."""
        return self._leader_epochs.epoch_at(offset)

    @contextmanager
    def storing(self, action: str) -> Iterator[None]:
        """Turn a failure of the disk into the KafkaError that clients get."""
        try:
            yield
        except OSError as failure:
            raise self._failures.error(action, failure) from failure

    # Retention

    def delete_records_before(self, offset: int) -> int:
        """Advance the log's start; the segments below it go with the next retention run."""
        if offset > self.log_end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is past the end {self.log_end_offset} of {self.directory.name}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._leader_epochs.truncate_from_start(offset)
            self.set_high_watermark(self._high_watermark)
        return self.log_start_offset

    def apply_retention(self) -> list[Path]:
        """Let go of expired segments; returns their renamed files, to remove after file.delete.delay.ms."""
        now_ms = self._clock.now_ms()
        self.producers.expire(now_ms - self._producer_id_expiration_ms)
        with self.storing("apply retention to"):
            expired = retention.count_expired(self.segments, self._config, self.log_start_offset, now_ms)
            if self.high_watermark < self.log_end_offset:
                # A record that is not committed yet must not be missing from one replica only.
                expired = min(expired, self._list.number_of(self.high_watermark))
            if not expired:
                return []
            if expired == len(self.segments):
                self.roll()
            return self._remove_oldest(expired)

    def _remove_oldest(self, count: int) -> list[Path]:
        logger.info("%s: removing %d expired segments", self.directory, count)
        removed = self._list.take_oldest(count)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self._leader_epochs.truncate_from_start(self.log_start_offset)
        return [path for segment in removed for path in retention.retire(segment, self._disk)]

    def replace_segments(self, replaced: Sequence[int], base_offset: int) -> list[Path] | None:
        """Put a staged compacted segment in the place of sealed ones; returns the old files for removal.

        Does nothing and returns None if retention has dropped one of them meanwhile.
        """
        return self._list.replace(replaced, base_offset, self._config)

    # Truncating

    def truncate_to(self, offset: int) -> list[Path]:
        """Drop the batches that reach to an offset or past it; returns files to remove after a delay.

        Batches are dropped whole, so the log may end before the offset. The caller writes the recovery point
        down before it appends again.
        """
        if offset >= self.log_end_offset:
            return []
        if offset < self.segments[0].base_offset:
            return self.restart_at(offset)
        with self._truncating():
            retired = self._list.truncate_to(offset)
            self._adopt_end(self._list.active.read_end_offset())
        return retired

    def restart_at(self, offset: int) -> list[Path]:
        """Drop everything and continue, empty, at an offset; returns files to remove after a delay."""
        with self._truncating():
            retired = self._list.restart_at(offset, self._config, self._clock.now_ms())
            self.log_start_offset = offset
            self._leader_epochs.clear()
            self._adopt_end(offset)
        return retired

    @contextmanager
    def _truncating(self) -> Iterator[None]:
        self.check_writable()
        self.truncations += 1
        self._reader.forget_positions()
        try:
            yield
        except OSError as failure:
            # Memory and files may differ now; the next start takes the files as they are.
            reason = failure.strerror or failure
            self.read_only_reason = (
                f"{self.directory.name} is read-only: it cannot be truncated ({reason}). "
                "Repair the disk and restart the broker"
            )
            raise self._failures.error("truncate", failure) from failure

    def _adopt_end(self, end_offset: int) -> None:
        """Bring everything that is derived from the segments back to where they end now."""
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._leader_epochs.truncate_from_end(end_offset)
        self._flusher.truncate_snapshots(self)
        recovery = ProducerRecovery(self.directory, self.segments, self._clock, self._disk)
        self.producers = recovery.restore(
            self._flusher.snapshots.offsets(),
            end_offset,
            indexed_up_to=end_offset,
            high_watermark=self._high_watermark,
        )
        self.set_high_watermark(self._high_watermark)
        self.producers.expire(self._clock.now_ms() - self._producer_id_expiration_ms)
        self._has_aborted_transactions = self._list.has_aborted_transactions()

    # Flushing and closing

    def begin_flush(self) -> Flush | None:
        """Prepare a flush of everything appended so far; None if nothing is unflushed.

        Run its run() in a thread, then its complete() on the loop.
        """
        return self._flusher.begin(self)

    @property
    def active_file(self) -> ActiveFile | None:
        """The file that appends go to; None while it is not open."""
        return self._list.active.active_file

    def report_missing(self, missing: ActiveFile) -> None:
        """Take no more records: the file they would go to was deleted, moved or replaced.

        Nothing is done if the log has closed the file since, as on a roll or when its topic is deleted.
        """
        active = self._list.active.active_file
        if self.read_only_reason is not None or active is None or active.file is not missing.file:
            return
        self.read_only_reason = (
            f"{self.directory.name} is read-only: its active segment {missing.path} was deleted, moved or "
            f"replaced under the running broker. Offsets {self._list.active.base_offset} to "
            f"{self.log_end_offset - 1} are only in the file that the broker still has open. "
            f"Save it before you stop the broker ({missing.rescue}), then restart the broker"
        )
        logger.error("%s", self.read_only_reason)

    def check_writable(self) -> None:
        """Raises KafkaError if the log takes no more records."""
        if self.read_only_reason is not None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, self.read_only_reason)

    def flush(self) -> None:
        """Force everything appended so far to disk, and wait for it."""
        self._flusher.flush(self)

    def release_idle_files(self) -> None:
        """Close files that were not used since the last call."""
        active = self._list.active.active_file
        if active is not None and not active.is_in_place():
            self.report_missing(active)
        if self.read_only_reason is not None:
            # An open file may be all that is left of its records.
            return
        for segment in self.segments:
            segment.release_idle_file()

    def close(self) -> None:
        """Bring everything to disk, so that opening needs no recovery, and let go of all files."""
        self._flusher.close(self)
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files and leave the directory as a killed process would."""
        for segment in self.segments:
            segment.release_file()
        self._reader.forget_positions()

    def delete(self) -> Callable[[], None]:
        """Take the log out of the way by renaming its directory; returns the slow rest, for a thread."""
        self.abandon()
        # Nothing is left to flush: soon the directory may be that of a new topic of the same name.
        self.recovery_point = self.log_end_offset
        doomed = doomed_path(self.directory)
        with self.storing("delete"), suppress(FileNotFoundError):
            self._disk.rename(self.directory, doomed)
        return lambda: shutil.rmtree(doomed, ignore_errors=True)


def _too_large(length: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        Error.RECORD_LIST_TOO_LARGE,
        f"A batch of {length} bytes does not fit into a segment of {config.segment_bytes} bytes",
    )


def _pick_jitter(config: LogConfig) -> int:
    """Spread the rolls of partitions that were created together."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit) if limit > 0 else 0
