"""The input and output of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Partition = tuple[bytes, int]
"""A topic's id and a partition's index."""

NO_PARTITIONS: frozenset[Partition] = frozenset()


class MemberSpec(NamedTuple):
    """One member of the group to assign partitions to."""

    topics: frozenset[bytes]
    """The existing topics that it is subscribed to."""
    target: frozenset[Partition] = NO_PARTITIONS
    """Its partitions in the previous assignment; no partition belongs to two members."""
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[bytes, int]
"""The number of partitions of each subscribed topic."""

Assignment = dict[str, frozenset[Partition]]
Assign = Callable[[Members, PartitionCounts], Assignment]
"""Gives each partition of each subscribed topic to exactly one of the topic's subscribers."""
