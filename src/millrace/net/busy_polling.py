"""Looking for the next request without going to sleep, while requests follow each other closely.

A client that waits for each response leaves the broker idle for a moment. On a virtual machine, putting a
core to sleep and waking it again goes through the host, takes about as long as that moment, and leaves the
caches cold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from millrace.clock import Clock

# A request that finds the broker asleep arrives this much later than one it was polling for.
WAKING_FACTOR = 2


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class BusyPolling:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = ("_clock", "_handled", "_last", "_loop", "_patience", "_polling")

    def __init__(self, loop: Loop, clock: Clock, patience_seconds: float) -> None:
        self._loop = loop
        self._clock = clock
        # Without a way to yield it would take the core from the very client it waits for.
        self._patience = patience_seconds if hasattr(os, "sched_yield") else 0.0
        self._last = 0.0
        self._handled = False
        self._polling = False

    def handled(self) -> None:
        """Requests have been handled: stay awake for more if the previous ones were close."""
        now = self._clock.monotonic()
        if not self._polling and now - self._last < self._patience * WAKING_FACTOR:
            self._polling = True
            self._loop.call_soon(self._turn)
        self._last = now
        self._handled = True

    def _turn(self) -> None:
        """Keep the loop from sleeping for one turn, and yield the core meanwhile.

        If other processes want the core, patience is over by the time they give it back.
        """
        if self._handled:
            self._handled = False
        else:
            os.sched_yield()
            if self._clock.monotonic() - self._last > self._patience:
                self._polling = False
                return
        self._loop.call_soon(self._turn)
