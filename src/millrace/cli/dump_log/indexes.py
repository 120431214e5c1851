"""Prints offset and time indexes, and checks each entry against the segment beside them."""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

import click

from millrace.cli.dump_log.segments import batch_headers, open_segment
from millrace.cli.terminal.errors import CommandError
from millrace.wire.records import BatchHeader, iterate_records

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1


class Complaint(NamedTuple):
    """A kind of mismatch between an index and its segment, in the words of Kafka's tool."""

    heading: str
    line: str


class Complaints:
    """Mismatches of all indexes, printed at the end."""

    MISMATCH: ClassVar = Complaint("Mismatches in :{}", "  Index offset: {}, log offset: {}")
    TIMESTAMP: ClassVar = Complaint(
        "Found timestamp mismatch in :{}", "  Index timestamp: {}, log timestamp: {}"
    )
    ORDER: ClassVar = Complaint(
        "Found out of order timestamp in :{}", "  Index timestamp: {}, Previously indexed timestamp: {}"
    )
    NOT_FOUND: ClassVar = Complaint(
        "The following indexed offsets are not found in the log.",
        "  Indexed offset: {}, found log offset: {}",
    )

    def __init__(self) -> None:
        self._found: dict[tuple[Complaint, Path], list[tuple[int, int]]] = {}

    def add(self, complaint: Complaint, path: Path, indexed: int, found: int) -> None:
        self._found.setdefault((complaint, path), []).append((indexed, found))

    def print(self) -> None:
        for (complaint, path), pairs in self._found.items():
            click.echo(complaint.heading.format(path.absolute()), err=True)
            for indexed, found in pairs:
                click.echo(complaint.line.format(indexed, found), err=True)


def dump_offset_index(path: Path, complaints: Complaints, verify_only: bool, sanity_only: bool) -> None:
    """Print an offset index, each entry compared with the batch it points at."""
    base_offset = int(path.stem)
    if sanity_only:
        _check_sanity(path, OFFSET_ENTRY, offset_column=0)
        return
    batches = dict(_batches_beside(path))
    for offset, position in _entries(path, OFFSET_ENTRY, offset_column=0):
        header = batches.get(position)
        if header is None or header.last_offset != base_offset + offset:
            found = -1 if header is None else header.last_offset
            complaints.add(Complaints.MISMATCH, path, base_offset + offset, found)
        if not verify_only:
            click.echo(f"offset: {base_offset + offset} position: {position}")


def dump_time_index(path: Path, complaints: Complaints, verify_only: bool, sanity_only: bool) -> None:
    """Print a time index, each entry compared with the batch that ends at its offset."""
    base_offset = int(path.stem)
    if sanity_only:
        _check_sanity(path, TIME_ENTRY, offset_column=1)
        return
    batches = _batches_beside(path)
    last_offsets = [header.last_offset for _, header in batches]
    previous = NO_TIMESTAMP
    for timestamp, relative_offset in _entries(path, TIME_ENTRY, offset_column=1):
        offset = base_offset + relative_offset
        number = bisect_left(last_offsets, offset)
        if number == len(batches) or last_offsets[number] != offset:
            found = last_offsets[number] if number < len(batches) else -1
            complaints.add(Complaints.NOT_FOUND, path, offset, found)
        else:
            largest = _largest_timestamp(path, *batches[number])
            if largest != timestamp:
                complaints.add(Complaints.TIMESTAMP, path, timestamp, largest)
        if previous >= timestamp:
            complaints.add(Complaints.ORDER, path, timestamp, previous)
        previous = timestamp
        if not verify_only:
            click.echo(f"timestamp: {timestamp} offset: {offset}")


def _entries(path: Path, entry: struct.Struct, offset_column: int) -> Iterator[tuple[int, ...]]:
    """Yield an index's entries; an index in use, or one after a crash, ends with zeros."""
    content = path.read_bytes()
    whole = len(content) - len(content) % entry.size
    for number, columns in enumerate(entry.iter_unpack(content[:whole])):
        if number and columns[offset_column] == 0:
            return
        if not any(columns):
            return
        yield columns


def _batches_beside(path: Path) -> list[tuple[int, BatchHeader]]:
    segment = path.with_suffix(".log")
    if not segment.is_file():
        raise CommandError(
            f"{path} is checked against {segment.name}, which is missing; put it beside the index"
        )
    with open_segment(segment) as view:
        return list(batch_headers(view))


def _largest_timestamp(path: Path, position: int, header: BatchHeader) -> int:
    """The largest timestamp of the records themselves; the header may be wrong."""
    with open_segment(path.with_suffix(".log")) as view:
        batch = bytes(view[position : position + header.size])
    return max((record.timestamp for record in iterate_records(batch)), default=NO_TIMESTAMP)


def _check_sanity(path: Path, entry: struct.Struct, offset_column: int) -> None:
    content = path.read_bytes()
    if len(content) % entry.size:
        raise CommandError(
            f"Corrupt index found: {path} has {len(content)} bytes, not a multiple of {entry.size}"
        )
    if content:
        first, last = entry.unpack_from(content), entry.unpack_from(content, len(content) - entry.size)
        if last[offset_column] < 0 or last < first:
            raise CommandError(f"Corrupt index found: the last entry of {path} is before its first")
    click.echo(f"{path} passed sanity check.")
