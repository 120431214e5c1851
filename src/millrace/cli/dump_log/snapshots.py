"""Prints producer snapshots and indexes of aborted transactions."""

from pathlib import Path

import click

from millrace.cli.terminal.errors import CommandError
from millrace.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from millrace.storage.transaction_index import ENTRY


def dump_snapshot(path: Path) -> None:
    """Print the producers of a snapshot file."""
    try:
        producers = decode_snapshot(path.read_bytes())
    except CorruptSnapshot as fault:
        raise CommandError(f"{path} is corrupt: {fault}") from None
    for producer in producers:
        first_offset = producer.current_transaction_first_offset
        transaction = "OptionalLong.empty" if first_offset < 0 else f"OptionalLong[{first_offset}]"
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch} currentTxnFirstOffset: {transaction}"
            f" lastTimestamp: {producer.last_timestamp} "
        )
        for batch in producer.batches[:1]:
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
                f" timestamp: {batch.timestamp}"
            )
        click.echo(line)


def dump_transaction_index(path: Path) -> None:
    """Print the aborted transactions of a segment."""
    content = path.read_bytes()
    if len(content) % ENTRY.size:
        raise CommandError(f"{path} is cut short")
    for version, producer_id, first, last, stable in ENTRY.iter_unpack(content):
        click.echo(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last}"
            f" lastStableOffset: {stable}"
        )
