"""How long something takes that is done over and over, one at a time, and what it costs the broker."""

from collections.abc import Callable

from benchmarks.percentiles import percentile
from benchmarks.target import Target

WARM_UP = 300


def measure_latency(target: Target, once: Callable[[], float], samples: int) -> dict[str, float]:
    """`once` does it and returns the milliseconds it took."""
    for _ in range(WARM_UP):
        once()
    with target.measured() as spent:
        milliseconds = [once() for _ in range(samples)]
    return {
        "p50 ms": percentile(milliseconds, 50),
        "p99 ms": percentile(milliseconds, 99),
        "broker CPU µs each": spent.broker_cpu_seconds / samples * 1e6,
    }
