"""The partitions that a worker reads, and how far each is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import TopicPartition

from millrace.topologies.runtime.units import Unit

Place = tuple[str, int]
"""A topic and a partition."""


class Unreadable(Exception):
    """A record cannot be processed, however often it is tried."""


class Source(Protocol):
    """The reader of a partition: the task of a log spout, the task of a bolt, or the acker."""

    @property
    def place(self) -> Place: ...

    @property
    def component(self) -> str | None:
        """The component whose tuples come from here; None for acks."""

    @property
    def start(self) -> str:
        """The position if nothing is committed: earliest or latest."""

    def split(self, message: Any) -> Sequence[Any]:
        """The parts of a record that are delivered, fail and are given up one by one.

        Raises Unreadable if the record cannot be processed.
        """

    def deliver(self, part: Any, unit: Unit) -> None:
        """Hand a part to the engine; every tuple that follows belongs to the unit."""

    def give_up(self, message: Any, part: Any, component: str, reason: str) -> None:
        """Keep a part that a component failed too often."""

    @property
    def is_internal(self) -> bool:
        """Whether no other program reads the partition."""

    def done(self, unit: Unit) -> None:
        """A part is processed or has failed."""


class Delivery(Unit):
    """A record, or one tuple of a frame, on its way through the worker."""

    __slots__ = ("generation", "index", "message", "part", "partition")

    def __init__(
        self,
        on_done: Callable[[Any], None],
        partition: InputPartition,
        message: Any,
        index: int,
        part: Any,
        generation: int,
    ) -> None:
        super().__init__(on_done)
        self.partition = partition
        self.message = message
        self.index = index
        self.part = part
        self.generation = generation

    @property
    def key(self) -> tuple[Place, int, int]:
        return self.partition.place, self.message.offset(), self.index


class InputPartition:
    """Which offsets of a partition are under way. Owned by the worker's loop; not thread-safe."""

    __slots__ = ("_incomplete", "committed", "end", "is_over", "paused", "place", "position", "source")

    def __init__(self, source: Source, committed: int, end: int | None = None) -> None:
        self.source = source
        self.place = source.place
        self.committed = committed
        """The offset that was committed last; -1 before the first commit."""
        self.position = committed
        """The offset after the last one that was begun."""
        self.end = end
        """The first offset that is not to be read, in a run over history."""
        self.is_over = end is None or committed >= end
        """Whether the clock has followed the records to the end of a range."""
        self.paused = False
        # Parts that are not done, by offset in ascending order, since offsets are begun in order.
        self._incomplete: dict[int, int] = {}

    def begin(self, offset: int, parts: int) -> None:
        if parts:
            self._incomplete[offset] = parts
        self.position = offset + 1

    def complete(self, offset: int) -> None:
        """One part of a record is done."""
        left = self._incomplete[offset] - 1
        if left:
            self._incomplete[offset] = left
        else:
            del self._incomplete[offset]

    def reached_end(self, offset: int) -> None:
        """The partition is read to its end, which may lie behind markers of transactions."""
        self.position = max(self.position, offset if self.end is None else min(offset, self.end))

    @property
    def committable(self) -> int:
        """The lowest offset that is not done: what lies below may be committed."""
        offset = next(iter(self._incomplete), self.position)
        # The end of a range is committed last, when ticks and windows up to it have been processed.
        return offset if self.is_over or self.end is None else min(offset, self.end - 1)

    @property
    def is_read(self) -> bool:
        """Whether the partition has been read to the end of its range."""
        return self.end is not None and self.position >= self.end

    @property
    def under_way(self) -> int:
        return len(self._incomplete)

    def rewind(self) -> int:
        """Forget what is under way; returns the offset to read from."""
        self._incomplete.clear()
        self.position = self.committed
        return self.position

    def offset_to_commit(self) -> TopicPartition | None:
        """The offset to commit, None if nothing has changed."""
        offset = self.committable
        if offset == self.committed or offset < 0:
            return None
        return TopicPartition(*self.place, offset)
