"""Fetches that wait for data: parked at their partitions, woken by appends or by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol


class Parking(Protocol):
    """Where a fetch waits: a partition."""

    parked: set[ParkedFetch]


class ParkedFetch:
    """Waits until `missing_bytes` have been appended to its partitions, or `max_wait_ms` have passed.

    `answer` is called once, on a later turn of the loop, so that the producer whose append ended the wait
    gets its own acknowledgement first. Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_answer", "_loop", "_missing_bytes", "_partitions", "_timer", "_woken", "reads_committed")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Iterable[Parking],
        missing_bytes: int,
        max_wait_ms: float,
        answer: Callable[[], None],
        *,
        reads_committed: bool = False,
    ) -> None:
        self._loop = loop
        self._partitions = tuple(partitions)
        self._missing_bytes = missing_bytes
        self._answer = answer
        self._woken = False
        self.reads_committed = reads_committed
        for partition in self._partitions:
            partition.parked.add(self)
        self._timer = loop.call_later(max_wait_ms / 1000, self.wake)

    def appended(self, size: int) -> None:
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Answer with whatever is there now."""
        if self._woken:
            return
        self.cancel()
        self._loop.call_soon(self._answer)

    def cancel(self) -> None:
        """Leave without an answer: the client is gone."""
        self._woken = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.parked.discard(self)
