"""Timers that fire when a test lets time pass."""

import itertools
import math
from collections.abc import Hashable

from millrace.testing.clock import ManualClock
from millrace.timers import Callback


class ManualTimers:
    """Timers on a manual clock: advance() moves the clock and fires the timers that are due, in order."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._pending: dict[Hashable, tuple[float, int, Callback]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def schedule(self, key: Hashable, delay_ms: float, callback: Callback) -> None:
        self._pending[key] = (self._clock.now_ms() + max(delay_ms, 0), next(self._numbers), callback)

    def cancel(self, key: Hashable) -> None:
        self._pending.pop(key, None)

    def cancel_all(self) -> None:
        self._pending.clear()

    @property
    def next_delay_ms(self) -> float:
        """The time until the next timer is due; infinite if there is none."""
        return (
            min((due_ms for due_ms, _, _ in self._pending.values()), default=math.inf) - self._clock.now_ms()
        )

    def advance(self, milliseconds: int) -> None:
        """Let time pass; a callback sees the time it was scheduled for."""
        end_ms = self._clock.now_ms() + milliseconds
        while self._pending:
            key = min(self._pending, key=lambda key: self._pending[key][:2])
            due_ms, _, callback = self._pending[key]
            if due_ms > end_ms:
                break
            del self._pending[key]
            # The clock counts whole milliseconds: a timer never fires early.
            self._clock.advance(max(math.ceil(due_ms) - self._clock.now_ms(), 0))
            callback()
        self._clock.advance(end_ms - self._clock.now_ms())
