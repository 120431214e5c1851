"""Memory for frames that arrive in pieces, bounded for the whole broker."""

from __future__ import annotations

import math
import mmap
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

SCRATCH_BYTES = 256 * 1024
POOLED_BYTES = 1024 * 1024
POOLED_BUFFERS = 8

FrameBuffer: TypeAlias = "bytearray | memoryview"


class FrameBuffers:
    """Hands out buffers for partly received frames and takes them back.

    Memory follows the bytes that really came, not what a frame claims to be. When `limit` is reached,
    whoever needs more waits in line, unread, until others have finished; one buffer at a time may grow
    beyond it, so that large frames that hold each other up always come to an end.
    Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_free", "_overdraft", "_waiting", "bytes_in_use", "limit", "scratch")

    def __init__(self, limit: int) -> None:
        # As in Kafka, a negative limit is none.
        self.limit: float = limit if limit >= 0 else math.inf
        self.bytes_in_use = 0
        # Whole frames are parsed here in place; one for all connections, since each is done when it returns.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._free = _pool()
        self._overdraft: FrameBuffer | None = None
        self._waiting: deque[Callable[[], object]] = deque()

    @property
    def full(self) -> bool:
        """Whether nothing more can be had until something is given back."""
        return self.bytes_in_use >= self.limit

    @property
    def short(self) -> bool:
        """Whether somebody waits for memory."""
        return bool(self._waiting)

    def take(self, size: int) -> FrameBuffer | None:
        """A buffer for a frame of `size` bytes (or for the start of a large one), if there is room."""
        if self.full:
            return None
        capacity = POOLED_BYTES if size > SCRATCH_BYTES else size
        self.bytes_in_use += capacity
        if capacity == POOLED_BYTES and self._free:
            return self._free.pop()
        return bytearray(capacity)

    def grow(self, buffer: FrameBuffer, size: int) -> FrameBuffer | None:
        """A copy of a full `buffer`, twice as large but within the frame's `size`, if there is room."""
        overdrawn = self.full
        if overdrawn and self._overdraft is not None and self._overdraft is not buffer:
            return None
        capacity = min(2 * len(buffer), size)
        larger = bytearray(capacity)
        larger[: len(buffer)] = buffer
        self.bytes_in_use += capacity
        if overdrawn:
            self._overdraft = larger
        self.give(buffer)
        return larger

    def give(self, buffer: FrameBuffer) -> None:
        self.bytes_in_use -= len(buffer)
        if isinstance(buffer, memoryview):
            self._free.append(buffer)
        if self._overdraft is buffer:
            self._overdraft = None
            # However full it is now: another one may overdraw.
            self._wake_everybody()
        elif self._waiting:
            self._wake()

    def hold(self, size: int) -> None:
        """Count bytes that a connection keeps elsewhere."""
        self.bytes_in_use += size

    def release(self, size: int) -> None:
        self.bytes_in_use -= size
        self._wake()

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` when there is room again, or may be."""
        self._waiting.append(resume)

    def _wake(self) -> None:
        while self._waiting and not self.full:
            self._waiting.popleft()()

    def _wake_everybody(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for resume in waiting:
            resume()


def _pool() -> list[memoryview]:
    """Buffers next to each other, so that they may lie in huge pages; each takes memory when first used.

    All that producers send in bulk passes through them three times, to be received, checked and written. On
    pages of the usual size, looking these up takes an eighth to a fifth of the broker's CPU time.
    """
    memory = mmap.mmap(-1, POOLED_BUFFERS * POOLED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            # A kernel may do without them.
            memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    return [view[start : start + POOLED_BYTES] for start in range(0, len(view), POOLED_BYTES)]
