"""Prints a segment's batches and records in the layout of Kafka's dump-log."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from millrace.cli.dump_log.records import RecordDecoder, describe_control
from millrace.wire.records import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    Record,
    advance_sequence,
    check_batch,
    iterate_records,
    read_header,
)


@contextmanager
def open_segment(path: Path, max_bytes: int | None = None) -> Iterator[memoryview]:
    """Map a segment's bytes, or the first of them, into memory."""
    size = path.stat().st_size
    if size == 0:
        yield memoryview(b"")
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        whole = memoryview(mapped)
        view = whole[: size if max_bytes is None else min(max_bytes, size)]
        try:
            yield view
        finally:
            view.release()
            whole.release()


def batch_headers(segment: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch, up to the first incomplete or invalid one."""
    position = 0
    while len(segment) - position >= HEADER_BYTES:
        header = read_header(segment, position)
        if header.magic != MAGIC or header.size < HEADER_BYTES or position + header.size > len(segment):
            return
        yield position, header
        position += header.size


class SegmentDump:
    """Prints segments; remembers gaps between offsets."""

    def __init__(
        self, *, decode: RecordDecoder | None, deep: bool, skip_metadata: bool, max_bytes: int | None
    ) -> None:
        self._decode = decode
        self._deep = deep
        self._skip_metadata = skip_metadata
        self._max_bytes = max_bytes
        self._gaps: dict[Path, list[tuple[int, int]]] = {}

    def dump(self, path: Path) -> None:
        """Print one segment."""
        click.echo(f"Log starting offset: {int(path.stem)}")
        end = 0
        last_offset: int | None = None
        with open_segment(path, self._max_bytes) as segment:
            for position, header in batch_headers(segment):
                batch = bytes(segment[position : position + header.size])
                click.echo(_batch_line(header, position, _is_valid(batch)))
                if self._deep:
                    last_offset = self._dump_records(path, header, batch, last_offset)
                end = position + header.size
            trailing = len(segment) - end
        if trailing and self._max_bytes is None:
            click.echo(f"Found {trailing} invalid bytes at the end of {path.name}")

    def _dump_records(
        self, path: Path, header: BatchHeader, batch: bytes, last_offset: int | None
    ) -> int | None:
        try:
            for record in iterate_records(batch):
                if last_offset is not None and record.offset != last_offset + 1:
                    self._gaps.setdefault(path, []).append((last_offset, record.offset))
                last_offset = record.offset
                click.echo(self._record_line(header, record))
        except CorruptBatch as fault:
            click.echo(
                f"The records of the batch at offset {header.base_offset} cannot be read: {fault.message}",
                err=True,
            )
        return last_offset

    def _record_line(self, header: BatchHeader, record: Record) -> str:
        parts = [] if self._skip_metadata else [_metadata(header, record)]
        if self._decode is not None and not header.is_control:
            key, value = self._decode(record)
            parts += [] if key is None else [f"key: {key}"]
            parts += [] if value is None else [f"payload: {value}"]
        return f"| {' '.join(parts)}" if parts else ""

    def print_gaps(self) -> None:
        """Print gaps between offsets; compaction leaves gaps, other logs should have none."""
        for path, gaps in self._gaps.items():
            click.echo(f"Non-consecutive offsets in {path.absolute()}", err=True)
            for before, after in gaps:
                click.echo(f"  {before} is followed by {after}", err=True)


def _is_valid(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except CorruptBatch:
        return False
    return True


def _batch_line(header: BatchHeader, position: int, is_valid: bool) -> str:
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_word(header.is_transactional)}"
        f" isControl: {_word(header.is_control)}"
        f" deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'}"
        f" position: {position} {_time_name(header)}: {header.max_timestamp} size: {header.size}"
        f" magic: {header.magic} compresscodec: {_codec_name(header)} crc: {header.crc}"
        f" isvalid: {_word(is_valid)}"
    )


def _metadata(header: BatchHeader, record: Record) -> str:
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = advance_sequence(sequence, record.offset - header.base_offset)
    text = (
        f"offset: {record.offset} {_time_name(header)}: {record.timestamp} keySize: {_size(record.key)}"
        f" valueSize: {_size(record.value)} sequence: {sequence}"
        f" headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    return f"{text} {describe_control(record)}" if header.is_control else text


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptBatch:
        return "unknown"


def _word(truth: bool) -> str:
    return "true" if truth else "false"
