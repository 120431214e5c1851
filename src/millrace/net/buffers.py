"""Memory for frames that arrive in pieces, bounded for the whole broker."""

from __future__ import annotations

import heapq
import itertools
import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

SCRATCH_BYTES = 256 * 1024
POOLED_BYTES = 1024 * 1024
POOLED_BUFFERS = 8
# Enough for any request without records. Frames up to this size never wait for memory.
SMALL_FRAME_BYTES = 16 * 1024
# The least that a larger frame starts with.
FIRST_BYTES = 4 * 1024
# A frame gets a pooled buffer once this much of it has arrived: a claimed size alone earns none.
POOLED_FROM_BYTES = 8 * 1024

FrameBuffer: TypeAlias = "bytearray | memoryview"
Callback: TypeAlias = "Callable[[], None]"


class PartialFrame:
    """A frame of `size` bytes whose first `filled` bytes have arrived."""

    __slots__ = ("buffer", "filled", "resume", "size")

    def __init__(self, size: int, received: memoryview, buffer: FrameBuffer) -> None:
        self.size = size
        self.filled = len(received)
        self.buffer = buffer
        self.buffer[: self.filled] = received
        self.resume: Callback | None = None
        """Set while the frame waits for memory."""

    @property
    def missing_bytes(self) -> int:
        return self.size - self.filled

    @property
    def is_small(self) -> bool:
        return self.size <= SMALL_FRAME_BYTES


class FrameBuffers:
    """Lends buffers to partly received frames.

    A buffer follows the bytes that have arrived, not the size that a frame claims: it starts small and
    doubles. At `limit`, a large frame waits with the rest of its bytes unread until others have finished; the
    frame that misses the least goes first. One frame at a time may grow beyond the limit, so that large
    frames which block each other all finish in the end. Owned by the broker loop; not thread-safe.
    """

    __slots__ = (
        "_free",
        "_numbers",
        "_on_short",
        "_overdraft",
        "_waiting",
        "bytes_in_use",
        "limit",
        "scratch",
    )

    def __init__(self, limit: int, on_short: Callback = lambda: None) -> None:
        # As in Kafka, a negative limit means none.
        self.limit: float = limit if limit >= 0 else math.inf
        self.bytes_in_use = 0
        # Whole frames are handled here in place. All connections share it: each is done when it returns.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._on_short = on_short
        self._free = _pool()
        self._overdraft: PartialFrame | None = None
        # Ordered by missing bytes, then by arrival.
        self._waiting: list[tuple[int, int, PartialFrame]] = []
        self._numbers = itertools.count()

    @property
    def is_short(self) -> bool:
        """Whether a frame waits for memory, or would have to."""
        return self.bytes_in_use >= self.limit or bool(self._waiting)

    # Frames

    def begin(self, size: int, received: memoryview) -> PartialFrame:
        """Keep the beginning of a frame; what has been received always finds room."""
        capacity = self._next_capacity(size, len(received))
        if self._waiting or self.bytes_in_use + capacity > self.limit:
            capacity = len(received)
        self._book(capacity)
        return PartialFrame(size, received, self._allocate(capacity))

    def make_room(self, frame: PartialFrame, resume: Callback) -> bool:
        """Enlarge a frame's full buffer.

        If memory is short, this returns False, and `resume` is called when the buffer has been enlarged.
        """
        goes_first = (
            not self._waiting
            or frame.missing_bytes < self._waiting[0][0]
            or frame.is_small
            or frame is self._overdraft
        )
        if goes_first and self._grow(frame):
            return True
        frame.resume = resume
        heapq.heappush(self._waiting, (frame.missing_bytes, next(self._numbers), frame))
        self._on_short()
        return False

    def shrink(self, frame: PartialFrame) -> None:
        """Take back the unused part of a buffer: its client sends nothing at the moment."""
        if len(frame.buffer) > frame.filled:
            self._move(frame, frame.filled)
            self._wake()

    def end(self, frame: PartialFrame) -> None:
        """Take a frame's buffer back: the frame is complete, or its connection is closed."""
        frame.resume = None
        if self._overdraft is frame:
            self._overdraft = None
        self._give(frame.buffer)
        frame.buffer = bytearray()
        self._wake()

    # Bytes that connections keep elsewhere

    def hold(self, size: int) -> None:
        self._book(size)

    def release(self, size: int) -> None:
        self.bytes_in_use -= size
        self._wake()

    def _grow(self, frame: PartialFrame) -> bool:
        """Enlarge a frame's buffer if the limit allows it."""
        capacity = self._next_capacity(frame.size, frame.filled)
        is_over = self.bytes_in_use + capacity - len(frame.buffer) > self.limit
        if is_over and not frame.is_small:
            if self._overdraft not in (None, frame):
                return False
            self._overdraft = frame
        self._move(frame, capacity)
        return True

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting:
            frame = waiting[0][2]
            if frame.resume is not None and not self._grow(frame):
                return
            heapq.heappop(waiting)
            resume, frame.resume = frame.resume, None
            if resume is not None:
                resume()

    def _next_capacity(self, size: int, filled: int) -> int:
        """The size of the buffer for a frame, when more of it is to be received."""
        if (
            size > SCRATCH_BYTES
            and POOLED_FROM_BYTES <= filled < POOLED_BYTES
            and self._free
            and self.bytes_in_use + POOLED_BYTES <= self.limit
        ):
            return POOLED_BYTES
        return min(size, max(2 * filled, FIRST_BYTES))

    def _move(self, frame: PartialFrame, capacity: int) -> None:
        self._book(capacity)
        old, frame.buffer = frame.buffer, self._allocate(capacity)
        frame.buffer[: frame.filled] = memoryview(old)[: frame.filled]
        self._give(old)

    def _allocate(self, capacity: int) -> FrameBuffer:
        if capacity == POOLED_BYTES and self._free:
            return self._free.pop()
        return bytearray(capacity)

    def _give(self, buffer: FrameBuffer) -> None:
        self.bytes_in_use -= len(buffer)
        if isinstance(buffer, memoryview):
            self._free.append(buffer)

    def _book(self, size: int) -> None:
        self.bytes_in_use += size
        if self.bytes_in_use > self.limit:
            self._on_short()


def _pool() -> list[memoryview]:
    """Adjacent buffers, so that they may lie in huge pages; each takes memory when first used.

    Bulk produce data passes through them three times: received, checked and written. With pages of the usual
    size, address translation alone takes an eighth to a fifth of the broker's CPU time.
    """
    memory = mmap.mmap(-1, POOLED_BUFFERS * POOLED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            # Not every kernel has them.
            memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    return [view[start : start + POOLED_BYTES] for start in range(0, len(view), POOLED_BYTES)]
