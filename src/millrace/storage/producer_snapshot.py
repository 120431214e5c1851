"""The `.snapshot` files: a log's producers as of an offset, in Kafka's format."""

import logging
import struct
from collections.abc import Collection
from pathlib import Path

from millrace.disk import Disk
from millrace.storage.producer_state import AppendedBatch, Producer, ProducerStates
from millrace.wire.checksum import crc32c
from millrace.wire.records import NO_SEQUENCE, advance_sequence

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the current transaction
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A snapshot file that cannot be used."""


def snapshot_path(directory: Path, offset: int) -> Path:
    """The file of the snapshot at an offset."""
    return directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_snapshot(producers: ProducerStates) -> bytes:
    """The content of a snapshot file."""
    body = bytearray(_COUNT.pack(len(producers)))
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        body += _ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else -1,
            last.offset_delta if last else 0,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_transaction_first_offset,
        )
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(content: bytes) -> ProducerStates:
    """The producers in a snapshot file's content."""
    body = content[_HEAD.size :]
    if len(body) < _COUNT.size:
        raise CorruptSnapshot("it is too short")
    version, crc = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshot(f"its version {version} is unknown")
    if crc != crc32c(body):
        raise CorruptSnapshot("its checksum does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"it does not hold the {count} producers it promises")
    producers = ProducerStates()
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producers.restore(_producer(entry))
    return producers


def _producer(entry: tuple[int, ...]) -> Producer:
    (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        first_offset,
    ) = entry
    producer = Producer(producer_id, epoch)
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.current_transaction_first_offset = first_offset
    if last_offset >= 0:
        first_sequence = advance_sequence(last_sequence, -offset_delta)
        producer.add(AppendedBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp))
    return producer


def read_snapshot(directory: Path, offset: int) -> ProducerStates | None:
    """The producers as of an offset; None, with a log line, where the file is unusable."""
    path = snapshot_path(directory, offset)
    try:
        return decode_snapshot(path.read_bytes())
    except (CorruptSnapshot, OSError) as fault:
        logger.warning("%s: snapshot ignored: %s", path, fault)
        return None


class Snapshots:
    """The snapshots of one log: each segment's at its start, and the newest."""

    __slots__ = ("_directory", "_disk", "_newest_offset")

    def __init__(self, directory: Path, disk: Disk, newest_offset: int) -> None:
        self._directory = directory
        self._disk = disk
        self._newest_offset = newest_offset

    def offsets(self) -> list[int]:
        """The offset of every snapshot on disk."""
        paths = self._directory.glob(f"*{SNAPSHOT_SUFFIX}")
        return sorted(int(path.stem) for path in paths if path.stem.isdigit())

    def truncate(self, offset: int) -> None:
        """Remove the snapshots past an offset: the batches that they speak of are gone."""
        for later in self.offsets():
            if later > offset:
                self._disk.remove(snapshot_path(self._directory, later))
        self._newest_offset = max(self.offsets(), default=-1)

    def take(self, offset: int, producers: ProducerStates, *, keep: Collection[int]) -> None:
        """Write the producers as of an offset; the newest so far goes, unless it is among those to keep.

        Not forced to disk, since a checksum reveals a torn file. A failure costs a longer replay.
        """
        replaced = self._newest_offset
        if offset == replaced:
            return
        path = snapshot_path(self._directory, offset)
        try:
            self._disk.replace(path, encode_snapshot(producers), durable=False)
        except OSError as failure:
            logger.warning("%s: cannot keep the producers' state: %s", path, failure)
            return
        self._newest_offset = offset
        if replaced >= 0 and replaced not in keep:
            self._disk.remove(snapshot_path(self._directory, replaced))
