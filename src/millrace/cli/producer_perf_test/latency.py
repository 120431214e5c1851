"""Counts records and their latencies, and prints them in the layout of Kafka's producer-perf-test."""

from array import array
from collections.abc import Callable

import click

MEBIBYTE = 1024 * 1024
# Above this number, latencies are sampled: more would not improve percentiles.
MAX_SAMPLES = 500_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)


class Latencies:
    """Latencies of a run of records, in milliseconds."""

    def __init__(self, expected: int) -> None:
        self.count = 0
        self._sum_ms = 0.0
        self._max_ms = 0.0
        self._every = max(1, -(-expected // MAX_SAMPLES))
        self._samples = array("d")

    def add(self, latencies_ms: "array[float]") -> None:
        """Count records by their latencies."""
        if not latencies_ms:
            return
        start = -self.count % self._every
        self._samples.extend(latencies_ms[start :: self._every])
        self.count += len(latencies_ms)
        self._sum_ms += sum(latencies_ms)
        self._max_ms = (
            max(self._max_ms, *latencies_ms) if len(latencies_ms) > 1 else max(self._max_ms, latencies_ms[0])
        )

    def window_line(self, seconds: float, record_bytes: float) -> str:
        """The line of a reporting interval."""
        rate = self.count / seconds
        return (
            f"{self.count} records sent, {rate:.1f} records/sec "
            f"({rate * record_bytes / MEBIBYTE:.2f} MB/sec), "
            f"{self._average_ms:.1f} ms avg latency, {self._max_ms:.1f} ms max latency."
        )

    def total_line(self, seconds: float, record_bytes: float, *, steady: bool = False) -> str:
        """The line of the whole run."""
        rate = self.count / seconds
        percentiles = ", ".join(
            f"{value:.0f} ms {fraction * 100:g}th"
            for fraction, value in zip(PERCENTILES, self._percentiles(), strict=True)
        )
        return (
            f"{self.count}{' steady state' if steady else ''} records sent, {rate:f} records/sec "
            f"({rate * record_bytes / MEBIBYTE:.2f} MB/sec), {self._average_ms:.2f} ms avg latency, "
            f"{self._max_ms:.2f} ms max latency, {percentiles}."
        )

    @property
    def _average_ms(self) -> float:
        return self._sum_ms / self.count if self.count else 0.0

    def _percentiles(self) -> list[float]:
        ordered = sorted(self._samples) or [0.0]
        return [ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] for fraction in PERCENTILES]


class Report:
    """Prints a line for every interval, and the summary of the run."""

    def __init__(self, expected: int, warmup: int, interval_ms: int, now: float) -> None:
        self._all = Latencies(expected)
        self._steady = Latencies(expected)
        self._window = Latencies(expected)
        self._expected = expected
        self._warmup = warmup
        self._interval_seconds = interval_ms / 1000
        self._began = self._window_began = now
        self._steady_began: float | None = None
        self.bytes = 0

    @property
    def count(self) -> int:
        """Delivered records."""
        return self._all.count

    @property
    def _record_bytes(self) -> float:
        return self.bytes / self.count if self.count else 0.0

    def add(
        self, latencies_ms: "array[float]", now: float, echo: Callable[[str], object] = click.echo
    ) -> None:
        """Count the latencies since the last call."""
        still_warming_up = max(0, self._warmup - self.count)
        self._all.add(latencies_ms)
        self._window.add(latencies_ms)
        if self._warmup:
            self._steady.add(latencies_ms[still_warming_up:])
        if now - self._window_began >= self._interval_seconds and self.count < self._expected:
            echo(self._window.window_line(now - self._window_began, self._record_bytes))
            self._window = Latencies(self._expected)
            self._window_began = now
        if self._warmup and self._steady_began is None and self.count >= self._warmup:
            self._steady_began = now
            echo("In steady state.")

    def print_summary(self, now: float) -> None:
        """Print the last lines."""
        click.echo(self._all.total_line(max(now - self._began, 1e-9), self._record_bytes))
        if self._steady_began is not None:
            seconds = max(now - self._steady_began, 1e-9)
            click.echo(self._steady.total_line(seconds, self._record_bytes, steady=True))
