"""Latency of a repeated operation, and its cost for the broker."""

from collections.abc import Callable

from benchmarks.target import Target

WARM_UP = 300


def measure_latency(target: Target, once: Callable[[], float], samples: int) -> dict[str, float]:
    """Repeat `once`, which returns the milliseconds it took."""
    for _ in range(WARM_UP):
        once()
    with target.measured() as spent:
        milliseconds = [once() for _ in range(samples)]
    return {
        "p50 ms": percentile(milliseconds, 50),
        "p99 ms": percentile(milliseconds, 99),
        "broker CPU µs each": spent.broker_cpu_seconds / samples * 1e6,
    }


def percentile(samples: list[float], percent: float) -> float:
    """The smallest sample that at least `percent` of all samples do not exceed."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]
