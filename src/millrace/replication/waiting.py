"""Fetches that wait for data: parked at their partitions, woken by appends or by a timeout."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from millrace.timers import Timers

logger = logging.getLogger(__name__)


class Woken:
    """Fetches whose wait is over, each to be answered on a later turn of the loop.

    A producer's request answers the first fetch before its own acknowledgement, since most records have one
    waiting consumer. It does not answer all of them, since there may be hundreds. Owned by the broker loop;
    not thread-safe.
    """

    __slots__ = ("_answering", "loop", "timers", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Timers) -> None:
        self.loop = loop
        self.timers = timers
        self.waiting: deque[Callable[[], None]] = deque()
        self._answering = False

    def add(self, answer: Callable[[], None]) -> None:
        self.waiting.append(answer)
        self.loop.call_soon(self.answer_next)

    def answer_next(self) -> None:
        """Answer the fetch that was woken first, if any is left.

        Its client may have sent further requests. They are handled now and may wake other fetches, which get
        a later turn.
        """
        if self._answering or not self.waiting:
            return
        self._answering = True
        try:
            self.waiting.popleft()()
        except Exception:
            # Do not propagate a fetch's failure to the producer that woke it.
            logger.exception("a bug: a parked fetch was not answered")
        finally:
            self._answering = False


class Parking(Protocol):
    """A place where fetches wait: a partition."""

    parked: set[ParkedFetch]


class ParkedFetch:
    """Waits until `missing_bytes` have been appended to its partitions, or `max_wait_ms` have passed.

    `answer` is called once. Owned by the broker loop; not thread-safe.
    """

    __slots__ = (
        "_answer",
        "_missing_bytes",
        "_partitions",
        "_woken",
        "reads_committed",
    )

    def __init__(
        self,
        woken: Woken,
        partitions: Iterable[Parking],
        missing_bytes: int,
        max_wait_ms: float,
        answer: Callable[[], None],
        *,
        reads_committed: bool = False,
    ) -> None:
        self._woken = woken
        self._partitions = tuple(partitions)
        self._missing_bytes = missing_bytes
        self._answer: Callable[[], None] | None = answer
        self.reads_committed = reads_committed
        for partition in self._partitions:
            partition.parked.add(self)
        woken.timers.schedule(self, max_wait_ms, self.wake)

    def appended(self, size: int) -> None:
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Answer with the records that are there now."""
        answer = self._answer
        if answer is not None:
            self.cancel()
            self._woken.add(answer)

    def cancel(self) -> None:
        """Leave without an answer: the client has disconnected."""
        # The callback refers back to this object: break the cycle.
        self._answer = None
        self._woken.timers.cancel(self)
        for partition in self._partitions:
            partition.parked.discard(self)
