"""Restoring a log's producers: the newest usable snapshot, and a replay of the batches behind it."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from millrace.clock import Clock
from millrace.disk import Disk
from millrace.storage.producer_snapshot import Snapshots, read_snapshot
from millrace.storage.producer_state import ProducerStates
from millrace.storage.segment import Segment
from millrace.storage.transaction_index import AbortedTransaction
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import CorruptBatch

logger = logging.getLogger(__name__)

# Index entries, counted from the log's end, among which a restart looks for batches that a client may repeat.
_RECENT_INDEX_ENTRIES = 32


class ProducerRecovery:
    """Rebuilds the producers of one log, and the transaction indexes that the replay passes."""

    def __init__(self, directory: Path, segments: Sequence[Segment], clock: Clock, disk: Disk) -> None:
        self._directory = directory
        self._segments = segments
        self._clock = clock
        self._disk = disk

    def restore(
        self,
        snapshot_offsets: Sequence[int],
        end_offset: int,
        indexed_up_to: int,
        high_watermark: int | None = None,
    ) -> ProducerStates:
        """Take the newest usable snapshot and replay the batches appended since.

        The snapshot must not be newer than the transaction indexes, since the replay also completes those.
        """
        producers, start_offset = ProducerStates(), 0
        for offset in sorted(snapshot_offsets, reverse=True):
            snapshot = read_snapshot(self._directory, offset) if offset <= indexed_up_to else None
            if snapshot is not None:
                producers, start_offset = snapshot, offset
                break
        producers.high_watermark = high_watermark
        bases = [segment.base_offset for segment in self._segments]
        snapshots = Snapshots(self._directory, self._disk, start_offset)
        for segment, following in zip(self._segments, [*bases[1:], end_offset], strict=True):
            if segment.base_offset > max(start_offset, bases[0]):
                # Segments before it may be deleted before the next unclean stop.
                snapshots.take(segment.base_offset, producers, keep=[start_offset, *bases])
            if following > start_offset:
                aborted = self._replay(segment, start_offset, producers)
                segment.restore_aborted(aborted, indexed_up_to)
        if start_offset and len(producers):
            self._recall_recent_batches(producers)
        return producers

    def _recall_recent_batches(self, producers: ProducerStates) -> None:
        """A snapshot keeps one batch of each producer, but a client may repeat its last five."""
        recent = ProducerStates()
        for segment, start_offset in reversed(list(self._recent_pieces())):
            self._replay(segment, start_offset, recent)
            if segment is not self._segments[-1]:
                segment.release_file()
        for producer in producers:
            producer.recall(recent)

    def _recent_pieces(self) -> Iterator[tuple[Segment, int]]:
        """The end of the log, its last segment first: each segment, and the first offset that counts."""
        wanted = _RECENT_INDEX_ENTRIES
        for segment in reversed(self._segments):
            index = segment.offset_index
            entry = index.from_end(wanted) if len(index) > wanted else None
            yield segment, entry.offset if entry else segment.base_offset
            # A segment without an entry has at least one batch to look at.
            wanted -= max(len(index), 1)
            if wanted <= 0:
                return

    def _replay(
        self, segment: Segment, start_offset: int, producers: ProducerStates
    ) -> list[AbortedTransaction]:
        """Record a segment's batches in producers; returns the transactions that were aborted."""
        now_ms = self._clock.now_ms()
        aborted: list[AbortedTransaction] = []
        try:
            found = segment.locate(start_offset) if segment.size else None
            for position, header in segment.headers(found[0]) if found else ():
                if not header.has_producer_id or header.base_offset < start_offset:
                    continue
                if header.is_control:
                    marker = read_end_marker(segment.read_batch(position, header))
                    ended = marker and producers.end_transaction(
                        header.producer_id, header.producer_epoch, marker, header.base_offset, now_ms
                    )
                    aborted += [ended] if ended else []
                else:
                    producers.record(header, header.base_offset, now_ms)
        except CorruptBatch as fault:
            logger.warning("%s; producers of the rest of this segment are unknown", fault.message)
        return aborted
