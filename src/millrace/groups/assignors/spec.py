"""What an assignor is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Partition = tuple[bytes, int]
"""A topic's id and a partition's index."""

NO_PARTITIONS: frozenset[Partition] = frozenset()


class MemberSpec(NamedTuple):
    """One member of the group to assign partitions to."""

    topics: frozenset[bytes]
    """What it is subscribed to, of the topics that exist."""
    target: frozenset[Partition] = NO_PARTITIONS
    """What the previous assignment gave it; no partition is in two of them."""
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[bytes, int]
"""How many partitions each subscribed topic has."""

Assignment = dict[str, frozenset[Partition]]
Assign = Callable[[Members, PartitionCounts], Assignment]
"""Gives each partition of each subscribed topic to exactly one of the topic's subscribers."""
