"""The time seam: code that needs the time receives a clock."""

import time
from collections.abc import Callable


class Clock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch, as record timestamps count it."""
        return time.time_ns() // 1_000_000

    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Monotonic seconds, for timeouts."""
