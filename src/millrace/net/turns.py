"""Turns of connections that have more requests waiting than they may handle at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from millrace.clock import Clock

# Connections in the queue handle requests for this long before the broker looks for new ones.
ROUND_SECONDS = 0.002
# A turn takes at least this long, if there are enough requests: its replies are sent together.
MIN_TURN_SECONDS = 0.000_25


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Queued(Protocol):
    """A connection in the queue."""

    def take_turn(self, ends: float) -> None:
        """Handle one request, and more until the clock shows `ends`."""


class Turns:
    """A queue of connections, which share rounds of fixed length.

    A client that sends one request at a time does not queue: it is served between two rounds, however many
    connections pipeline their requests. Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_clock", "_is_scheduled", "_loop", "_queue")

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._queue: deque[Queued] = deque()
        self._is_scheduled = False

    def join(self, connection: Queued) -> None:
        self._queue.append(connection)
        if not self._is_scheduled:
            self._schedule()

    def turn_seconds(self) -> float:
        """The length of a turn that begins now."""
        return max(ROUND_SECONDS / (1 + len(self._queue)), MIN_TURN_SECONDS)

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        now = self._clock.monotonic()
        round_ends = now + ROUND_SECONDS
        try:
            for _ in range(len(self._queue)):
                self._queue.popleft().take_turn(now + self.turn_seconds())
                now = self._clock.monotonic()
                if now >= round_ends:
                    break
        finally:
            self._is_scheduled = False
            if self._queue:
                self._schedule()
