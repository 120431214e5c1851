"""A clock that stands still until a test moves it."""

from millrace.clock import Clock


class ManualClock(Clock):
    """Time that passes only through advance()."""

    __slots__ = ("_monotonic", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """The wall-clock time that the test has set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds advanced since the clock was made."""
        return self._monotonic

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000
