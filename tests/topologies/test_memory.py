"""The memory limit of workers."""

import pytest

from millrace.topologies.runtime.memory import MemoryExceeded, check_memory, resident_bytes


def test_a_worker_over_its_limit_ends_with_a_reason() -> None:
    if resident_bytes() is None:
        pytest.skip("needs /proc")
    with pytest.raises(MemoryExceeded, match=r"worker 2 uses \d+ MB, more than the 1 MB"):
        check_memory(2, 1)


def test_a_worker_within_its_limit_goes_on() -> None:
    check_memory(0, 1_000_000)
    check_memory(0, None)
