"""The whole state of a log, to compare two logs that must be the same."""

from collections.abc import Iterator
from typing import Any

from millrace.storage.log import Log
from millrace.wire.records import BatchHeader, iterate_batches

from .by_time import first_at_or_after

EPOCHS = range(8)


def batches_of(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from the log's start on."""
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20, min_one_batch=True)) is not None:
        yield from iterate_batches(piece.read())
        offset = piece.next_offset


def state_of(log: Log) -> dict[str, Any]:
    """Everything that readers, producers and followers can learn from a log."""
    end = log.log_end_offset
    return {
        "batches": [bytes(batch) for _, batch in batches_of(log)],
        "start": log.log_start_offset,
        "end": end,
        "size": log.size,
        "stable": log.last_stable_offset,
        "aborted": log.aborted_transactions(log.log_start_offset, end),
        "epochs": [log.epoch_at(offset) for offset in range(log.log_start_offset, end)],
        "epoch ends": [log.epoch_end_offset(epoch) for epoch in EPOCHS],
        "times": [found and found.offset for found in _by_time(log)],
        "producers": {
            producer.producer_id: (
                producer.epoch,
                producer.next_sequence if producer.batches else None,
                # Their timestamps only matter for LogAppendTime.
                [batch[:4] for batch in producer.batches],
                producer.coordinator_epoch,
                producer.current_transaction_first_offset,
            )
            for producer in log.active_producers()
        },
    }


def _by_time(log: Log) -> Iterator[Any]:
    for header, _ in batches_of(log):
        yield first_at_or_after(log, header.max_timestamp)
