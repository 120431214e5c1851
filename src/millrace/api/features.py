"""The features this broker supports and has switched on; clients learn of them from ApiVersions."""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature's range of levels, and the one in force."""

    name: str
    lowest: int
    highest: int
    finalized: int


FEATURES = (
    # Level 1: the consumer protocol (KIP-848).
    Feature("group.version", 0, 1, 1),
    # Level 2: transactions have an epoch each, and partitions join them by being produced to (KIP-890).
    Feature("transaction.version", 0, 2, 2),
)
"""Drives ApiVersions; nothing else lists the features."""

EPOCH = 1
"""Rises with every change of the finalized levels: clients keep those of the highest epoch they have seen."""
