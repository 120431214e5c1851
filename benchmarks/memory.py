"""Keeps what the machine does with its memory out of the figures.

A virtual machine gives memory that is free back to its host, every second or so, and pays for each page that
it takes again: on some machines several times what either broker spends on the page.
"""

import mmap

PAGE_BYTES = 4096


def warm(size: int) -> None:
    """Touch so much free memory that the pages taken within the next moments are there."""
    with mmap.mmap(-1, size) as memory:
        memory[::PAGE_BYTES] = bytes(len(range(0, size, PAGE_BYTES)))
