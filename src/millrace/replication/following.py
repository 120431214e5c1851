"""A follower's half of replication: the position that it fetches from, and what it does with a response."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace.replication.partition import Partition

NO_EPOCH = -1

Truncate = Callable[[Partition, int], object]
"""Drops the records of a follower from an offset on."""


class FetchPosition(NamedTuple):
    """The end of a follower's log, and the epochs that its leader checks."""

    offset: int
    last_epoch: int
    """The epoch of the last record; NO_EPOCH in an empty log."""
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The leader's largest epoch up to the follower's last one, and the offset where it ended."""

    epoch: int
    end_offset: int


def position_of(partition: Partition) -> FetchPosition:
    """The position that a follower fetches from."""
    last_epoch = partition.log.latest_epoch
    return FetchPosition(
        partition.log.log_end_offset, NO_EPOCH if last_epoch is None else last_epoch, partition.leader_epoch
    )


def take(
    partition: Partition,
    asked: FetchPosition,
    *,
    records: memoryview,
    high_watermark: int,
    diverging: EpochEnd | None,
    truncate: Truncate,
) -> None:
    """Append what the leader sent, or drop what the leader does not have.

    Raises FENCED_LEADER_EPOCH if the response is from an epoch that is over. A response to another position
    than the present one is of no use any more, and ignored.
    """
    partition.check_follows(asked.leader_epoch)
    if asked != position_of(partition):
        return
    if diverging is not None:
        truncate(partition, partition.divergence(diverging.epoch, diverging.end_offset))
    else:
        partition.append_as_follower(records, asked.leader_epoch, high_watermark)
