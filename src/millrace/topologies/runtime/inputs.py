"""The partitions that a worker reads, and how far each is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from millrace.topologies.runtime.units import Unit

Place = tuple[str, int]
"""A topic and a partition."""


class InputPartition:
    """Which offsets of a partition are under way. Owned by the worker's loop; not thread-safe."""

    __slots__ = ("_incomplete", "committed", "deliver", "finished", "place", "position")

    def __init__(
        self,
        place: Place,
        deliver: Callable[[Any, Unit], None],
        committed: int,
        finished: Callable[[Unit], None] | None = None,
    ) -> None:
        self.place = place
        self.deliver = deliver
        """Hands a message to the engine."""
        self.finished = finished
        """Called with the unit of a message that is done."""
        self.committed = committed
        """The offset that was committed last; -1 before the first commit."""
        self.position = committed
        """The offset after the last one that was begun."""
        # In ascending order, since offsets are begun in order.
        self._incomplete: dict[int, None] = {}

    def begin(self, offset: int) -> None:
        self._incomplete[offset] = None
        self.position = offset + 1

    def complete(self, offset: int) -> None:
        self._incomplete.pop(offset, None)

    def reached_end(self, offset: int) -> None:
        """The partition is read to its end, which may lie behind markers of transactions."""
        if not self._incomplete:
            self.position = max(self.position, offset)

    @property
    def committable(self) -> int:
        """The lowest offset that is not done: what lies below may be committed."""
        return next(iter(self._incomplete), self.position)

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
