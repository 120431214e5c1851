"""Looking for the next request without going to sleep, while requests come one close upon another.

A client that waits for each answer leaves the broker idle for a moment. Putting a core to sleep and waking it
again takes about as long on a virtual machine, where both go through the host, and finds the caches cold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Protocol

# A request that finds the broker asleep comes that much later than one which it looks out for.
WAKING_FACTOR = 2


class Loop(Protocol):
    """What an event loop is needed for here."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class BusyPolling:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = ("_handled", "_last", "_loop", "_patience", "_polling")

    def __init__(self, loop: Loop, patience_seconds: float) -> None:
        self._loop = loop
        # Without a way to let others go first it would take the core from the very client it waits for.
        self._patience = patience_seconds if hasattr(os, "sched_yield") else 0.0
        self._last = 0.0
        self._handled = False
        self._polling = False

    def handled(self) -> None:
        """Requests have been handled: stay awake for more if those before them were close."""
        now = monotonic()
        if not self._polling and now - self._last < self._patience * WAKING_FACTOR:
            self._polling = True
            self._loop.call_soon(self._turn)
        self._last = now
        self._handled = True

    def _turn(self) -> None:
        """Keep the loop from sleeping for one turn, and let others have the core meanwhile.

        On a core that others want, patience is over by the time it is given back.
        """
        if self._handled:
            self._handled = False
        else:
            os.sched_yield()
            if monotonic() - self._last > self._patience:
                self._polling = False
                return
        self._loop.call_soon(self._turn)
