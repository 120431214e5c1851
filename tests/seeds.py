"""Seeds of randomized tests: a few in every run, many with `make soak`.

`MILLRACE_CRASH_SEEDS=100 pytest tests/crash` plays a hundred seeds, from MILLRACE_CRASH_FIRST_SEED on.
"""

import os

import pytest

FIRST_SEED = 1


def seeds(usual: int, soak: int) -> list[object]:
    """Parameters for `usual` seeds, and for further seeds up to `soak` that only `make soak` plays."""
    first = int(os.environ.get("MILLRACE_CRASH_FIRST_SEED", FIRST_SEED))
    if "MILLRACE_CRASH_SEEDS" in os.environ:
        return list(range(first, first + int(os.environ["MILLRACE_CRASH_SEEDS"])))
    further = range(first + usual, first + soak)
    return [*range(first, first + usual), *(pytest.param(seed, marks=pytest.mark.soak) for seed in further)]
