"""The time seam: everything that needs the time is handed a clock."""

import time


class Clock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch, as record timestamps count it."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back, for timeouts."""
        return time.monotonic()
