"""Requests that wait at their partitions: fetches for bytes, produce requests for the high watermark.

Both are woken by the partition, when records are committed or when it has no leader here any more, or by a
timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.timers import Timers

logger = logging.getLogger(__name__)


class Woken:
    """Requests whose wait is over, each to be answered on a later turn of the loop.

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
        """Answer the request that was woken first, if any is left.

        Its client may have sent further requests. They are handled now and may wake others, which get a later
        turn.
        """
        if self._answering or not self.waiting:
            return
        self._answering = True
        try:
            self.waiting.popleft()()
        except Exception:
            # Do not propagate a request's failure to the one that woke it.
            logger.exception("a bug: a parked request was not answered")
        finally:
            self._answering = False


class Parking(Protocol):
    """A place where fetches wait: a partition."""

    parked: set[ParkedFetch]


class ParkedFetch:
    """Waits until `missing_bytes` more can be read from its partitions, or `max_wait_ms` have passed.

    Consumers read committed records, followers all of them. `answer` is called once. Owned by the broker
    loop; not thread-safe.
    """

    __slots__ = (
        "_answer",
        "_missing_bytes",
        "_partitions",
        "_woken",
        "is_follower",
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
        is_follower: bool = False,
    ) -> None:
        self._woken = woken
        self._partitions = tuple(partitions)
        self._missing_bytes = missing_bytes
        self._answer: Callable[[], None] | None = answer
        self.reads_committed = reads_committed
        self.is_follower = is_follower
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


class CommitWaits:
    """Waits for offsets of one partition to be committed. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_cancelled", "_numbers", "_waiting")

    def __init__(self) -> None:
        # A heap by offset. A batch that is sent again waits for an offset below those of later batches.
        self._waiting: list[tuple[int, int, Deferred[None]]] = []
        self._numbers = count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._waiting) - self._cancelled

    def add(self, end_offset: int) -> Deferred[None]:
        """Resolves when the high watermark reaches an offset."""
        wait: Deferred[None] = Deferred(on_cancel=self._forget_cancelled)
        heappush(self._waiting, (end_offset, next(self._numbers), wait))
        return wait

    def advance(self, high_watermark: int) -> None:
        """Resolve the waits for offsets up to the high watermark."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            _, _, wait = heappop(self._waiting)
            self._cancelled -= wait.cancelled
            wait.resolve(None)

    def fail(self, error: Error) -> None:
        """End every wait with an error."""
        waiting, self._waiting, self._cancelled = self._waiting, [], 0
        for _, _, wait in sorted(waiting):
            wait.fail(KafkaError(error))

    def _forget_cancelled(self) -> None:
        """Requests that time out while nothing is committed must not pile up."""
        self._cancelled += 1
        if self._cancelled * 2 > len(self._waiting):
            self._waiting = [waiting for waiting in self._waiting if not waiting[2].cancelled]
            self._cancelled = 0
            heapify(self._waiting)


class ParkedProduce:
    """Waits until the records of a request are committed in all its partitions, or `timeout_ms` have passed.

    Each wait comes with a function that is given its error, if it fails. Owned by the broker loop; not
    thread-safe.
    """

    __slots__ = ("_waits", "_woken", "done")

    def __init__(
        self,
        woken: Woken,
        waits: Iterable[tuple[Deferred[None], Callable[[KafkaError], None]]],
        timeout_ms: float,
    ) -> None:
        self._woken = woken
        self._waits = dict(waits)
        self.done: Deferred[None] = Deferred(on_cancel=self._cancel)
        """Resolved once every wait has its outcome."""
        woken.timers.schedule(self, timeout_ms, self._time_out)
        for wait in list(self._waits):
            wait.then(partial(self._settle, wait))

    def _settle(self, wait: Deferred[None], outcome: BaseException | None) -> None:
        fail = self._waits.pop(wait)
        if isinstance(outcome, KafkaError):
            fail(outcome)
        if not self._waits:
            self._woken.timers.cancel(self)
            self._woken.add(partial(self.done.resolve, None))

    def _time_out(self) -> None:
        waits, self._waits = self._waits, {}
        for wait, fail in waits.items():
            wait.cancel()
            fail(KafkaError(Error.REQUEST_TIMED_OUT))
        self._woken.add(partial(self.done.resolve, None))

    def _cancel(self) -> None:
        """The client has disconnected."""
        self._woken.timers.cancel(self)
        waits, self._waits = self._waits, {}
        for wait in waits:
            wait.cancel()
