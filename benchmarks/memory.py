"""Keeps what the machine does with its memory out of the figures.

A virtual machine gives memory that is free back to its host, bit by bit, and pays for each page that it takes
again: on some machines several times what either broker spends on the page. So most of the memory is held
during a comparison, and what is left free is touched before a load that takes much of it.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

PAGE_BYTES = 4096
# What two brokers and a load work with, and the logs that are read back.
LEFT_BYTES = 6_000_000_000
# Touching all that is free would make the kernel look for more.
RESERVE_BYTES = 500_000_000


@contextmanager
def held() -> Iterator[None]:
    """Hold all memory that is free, but for what a comparison needs."""
    with _touched(max(psutil.virtual_memory().free - LEFT_BYTES, PAGE_BYTES)):
        yield


def warm() -> None:
    """Touch what is free, so that pages taken within the next moments are there."""
    with _touched(max(min(psutil.virtual_memory().free, LEFT_BYTES) - RESERVE_BYTES, PAGE_BYTES)):
        pass


@contextmanager
def _touched(size: int) -> Iterator[None]:
    with mmap.mmap(-1, size) as memory:
        memory[::PAGE_BYTES] = bytes(len(range(0, size, PAGE_BYTES)))
        yield
