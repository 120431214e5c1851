"""Keeps what the machine does with its memory out of the figures.

A virtual machine gives memory that is free back to its host, every second or so, and pays for each page that
it takes again: on some machines several times what either broker spends on the page. A machine that has
served for a while has no free memory, since files fill it; here they fill it before.
"""

import ctypes
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase

import psutil

# Numbers of options of glibc's `mallopt`.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
BLOCK_BYTES = 1 << 20


@contextmanager
def full_page_cache() -> Iterator[Callable[[], None]]:
    """Fill the memory that is free with pages of a file, which the kernel drops when others need them.

    The file is a hole, so that no disk is read. What is yielded fills up again.
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
    """Touch so much free memory that the pages taken within the next moments are there.

    They are taken and freed as those of a log: single pages are not what the kernel takes for large writes.
    """
    block = bytes(BLOCK_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(size // BLOCK_BYTES):
            file.write(block)


def keep_freed() -> None:
    """Let this process keep the memory that it frees, for what it needs next.

    glibc gives large blocks back at once, such as the buffer of each batch, and takes new ones page by page.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 1 << 25)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
