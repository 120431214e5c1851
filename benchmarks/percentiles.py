"""Percentiles of measured samples."""


def percentile(samples: list[float], percent: float) -> float:
    """The smallest sample that at least `percent` of all samples do not exceed."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[int(rank) - 1]
