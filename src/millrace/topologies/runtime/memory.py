"""The memory of a worker, and its limit."""

from __future__ import annotations

import resource
from pathlib import Path

from millrace.topologies.model.errors import TopologyError

STATM = Path("/proc/self/statm")
MEGABYTE = 1 << 20


class MemoryExceeded(TopologyError):
    """A worker uses more memory than its topology allows; it is started again."""


def resident_bytes() -> int | None:
    """The memory that this process uses now, None if the system does not say."""
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def check_memory(worker: int, limit_mb: float | None) -> None:
    """Raise MemoryExceeded if this process uses more than the limit."""
    if limit_mb is None:
        return
    used = resident_bytes()
    if used is not None and used > limit_mb * MEGABYTE:
        raise MemoryExceeded(
            f"worker {worker} uses {used // MEGABYTE} MB, more than the {limit_mb:g} MB of "
            "topology.worker.max.heap.size.mb; it starts again from the last commit"
        )
