"""Timers by key: session timeouts, parked fetches, idle connections. Tests replace them with manual ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Protocol

Callback = Callable[[], object]


class Timers(Protocol):
    """At most one timer per key; scheduling a key again replaces its timer."""

    def schedule(self, key: Hashable, delay_ms: float, callback: Callback) -> None: ...

    def cancel(self, key: Hashable) -> None: ...


async def pause(timers: Timers, delay_ms: float) -> None:
    """Wait for a time that these timers measure."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        # The task that waits may have been cancelled in this turn of the loop.
        if not over.done():
            over.set_result(None)

    timers.schedule(over, delay_ms, end)
    try:
        await over
    finally:
        timers.cancel(over)


class LoopTimers:
    """Timers of an event loop. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: dict[Hashable, asyncio.TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: float, callback: Callback) -> None:
        self.cancel(key)
        self._pending[key] = self._loop.call_later(max(delay_ms, 0) / 1000, self._fire, key, callback)

    def cancel(self, key: Hashable) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            pending.cancel()

    def cancel_all(self) -> None:
        for key in list(self._pending):
            self.cancel(key)

    def _fire(self, key: Hashable, callback: Callback) -> None:
        del self._pending[key]
        callback()
