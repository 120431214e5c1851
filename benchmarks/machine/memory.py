"""Keeps the machine's handling of free memory out of the figures.

A virtual machine returns free memory to its host every second or so, and pays for each page that it takes
again: on some machines several times what either broker spends on the page. A machine that has run for a
while has no free memory, since files fill it; here a file fills it in advance.
"""

import ctypes
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase

import psutil

# Options of glibc's `mallopt`.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
BLOCK_BYTES = 1 << 20


@contextmanager
def full_page_cache() -> Iterator[Callable[[], None]]:
    """Fill free memory with pages of a file, which the kernel drops when others need memory.

    The file is sparse, so that no disk is read. Yields a function that fills the memory again.
    """
    with tempfile.TemporaryFile() as file:
        file.truncate(psutil.virtual_memory().available)
        _read(file)
        yield lambda: _read(file)


def _read(file: BufferedIOBase) -> None:
    buffer = bytearray(BLOCK_BYTES)
    file.seek(0)
    while file.readinto(buffer):
        pass


def warm(size: int) -> None:
    """Touch this much free memory, so that pages needed soon are already mapped.

    The pages are used and freed like those of a log: for large writes, the kernel does not use single pages.
    """
    block = bytes(BLOCK_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(size // BLOCK_BYTES):
            file.write(block)


def keep_freed() -> None:
    """Let this process keep freed memory for its next allocations.

    glibc returns large blocks, such as the buffer of each batch, at once, and gets new ones page by page.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 1 << 25)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
