"""Cuts the bytes of one connection into frames."""

from __future__ import annotations

import struct
from collections.abc import Callable

from millrace.clock import Clock
from millrace.net.buffers import SCRATCH_BYTES, SMALL_FRAME_BYTES, FrameBuffers, PartialFrame
from millrace.net.replies import CloseConnection
from millrace.net.transport import Transport

SIZE = struct.Struct(">i")
# The api key, its version and the correlation id.
MIN_FRAME_BYTES = 8
# Read at once while memory is short, and where another large frame probably begins.
SHORT_READ_BYTES = 16 * 1024
# A part as large as the largest packets comes from a sender that is busy sending more. The receiver then
# waits for this much of the frame, or for the rest of it: each wake-up of the broker finds cold caches.
QUICK_PART_BYTES = 64 * 1024
AWAITED_BYTES = 400_000
# While memory is short, a client may not fall silent in the middle of a frame for longer than this, nor send
# it more slowly than this for some seconds.
MAX_SILENCE_SECONDS = 1.0
MIN_BYTES_PER_SECOND = 64 * 1024
MAX_SLOW_SECONDS = 5.0

NOTHING = memoryview(b"")
CLOSED = "closed by the client"


class FrameReceiver:
    """Receives small frames in the shared scratch buffer, and others in buffers of their own.

    Owned by the broker loop; not thread-safe.
    """

    __slots__ = (
        "_awaited",
        "_buffers",
        "_clock",
        "_complete",
        "_data",
        "_expects_large",
        "_held",
        "_is_drained",
        "_is_scratch",
        "_max_frame_bytes",
        "_measured_from",
        "_on_room",
        "_position",
        "_transport",
        "bytes_received",
        "frames",
        "is_waiting",
        "partial",
    )

    def __init__(
        self,
        transport: Transport,
        buffers: FrameBuffers,
        *,
        clock: Clock,
        max_frame_bytes: int,
        on_room: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._buffers = buffers
        self._clock = clock
        self._max_frame_bytes = max_frame_bytes
        self._on_room = on_room
        # Bytes that are not cut into frames yet: in the scratch buffer, or kept for a later turn.
        self._data = NOTHING
        self._position = 0
        self._is_scratch = False
        # How many of the kept bytes count as memory in use.
        self._held = 0
        # Whether the last read left nothing behind.
        self._is_drained = True
        # Large frames usually arrive back to back.
        self._expects_large = False
        # How many bytes must have arrived for the transport to report them.
        self._awaited = 1

        self.frames = 0
        """Whole frames so far."""
        self.bytes_received = 0
        self.partial: PartialFrame | None = None
        """The frame that is being received in a buffer of its own."""
        self.is_waiting = False
        """Whether it waits for memory; `on_room` is called when it no longer does."""
        # When the speed of that frame was first measured, and how much of it had arrived by then.
        self._measured_from = (0.0, 0)
        # A frame that is complete and being handled in a buffer of its own.
        self._complete: PartialFrame | None = None

    def receive(self) -> None:
        """Receive what has arrived.

        Raises BlockingIOError if nothing has or if there is no memory for it, and other kinds of OSError if
        the connection is closed.
        """
        if self.partial is not None:
            self._receive_part(self.partial)
            return
        scratch = self._buffers.scratch
        kept = len(self._data) - self._position
        if kept:
            # Part of a size prefix.
            scratch[:kept] = self._data[self._position :]
        if self._expects_large or self._buffers.is_short:
            # The rest of a large frame goes straight to its own buffer.
            scratch = scratch[: kept + SHORT_READ_BYTES]
        received = self._transport.recv_into(scratch[kept:] if kept else scratch)
        if not received:
            raise ConnectionResetError(CLOSED)
        self.bytes_received += received
        end = kept + received
        self._is_drained = end < len(scratch)
        self._is_scratch = True
        self._expects_large = False
        self._data, self._position = scratch[:end], 0

    def next_frame(self) -> memoryview | None:
        """The next whole frame, if there is one. Its memory is valid until the next call of any method."""
        if self._complete is not None:
            self._release_complete()
        if self.partial is None:
            data, start = self._data, self._position + 4
            if len(data) < start:
                return None
            (size,) = SIZE.unpack_from(data, self._position)
            if not MIN_FRAME_BYTES <= size <= self._max_frame_bytes:
                raise CloseConnection(
                    f"a request of {size} bytes, where {MIN_FRAME_BYTES} to {self._max_frame_bytes} are"
                    " allowed (socket.request.max.bytes); is this a Kafka client?"
                )
            end = start + size
            if end <= len(data):
                self._position = end
                self.frames += 1
                return data[start:end]
            self._begin_partial(size, data[start:])
        partial = self.partial
        if partial is None or partial.filled < partial.size:
            return None
        self.partial, self._complete = None, partial
        self.frames += 1
        return memoryview(partial.buffer)[: partial.size]

    def keep_rest(self) -> bool:
        """Keep what is not handled yet: other connections use the scratch buffer next.

        Returns whether there may be another whole frame.
        """
        if self._complete is not None:
            self._release_complete()
        rest = len(self._data) - self._position
        if rest < SIZE.size:
            self._data = memoryview(bytes(self._data[self._position :])) if rest else NOTHING
            self._position = 0
            self._is_scratch = False
            if self._held:
                self._release_held()
            return False
        if self._is_scratch:
            self._is_scratch = False
            self._data, self._position = memoryview(bytes(self._data[self._position :])), 0
            self._held = rest
            self._buffers.hold(rest)
        return True

    def become_idle(self) -> None:
        """Report every packet again, and return spare memory: the client has been silent for a while."""
        self._await_bytes(1)
        if self.partial is not None:
            self._buffers.shrink(self.partial)

    def stalls(self, now: float, silent_seconds: float) -> bool:
        """Whether memory is held for a client that sends little or nothing."""
        partial = self.partial
        if partial is None:
            return self._held > SMALL_FRAME_BYTES and silent_seconds > MAX_SILENCE_SECONDS
        if self.is_waiting:
            return False
        if silent_seconds > MAX_SILENCE_SECONDS and not self._transport.unread_bytes():
            return True
        since, filled = self._measured_from
        seconds = now - since
        return seconds > MAX_SLOW_SECONDS and partial.filled - filled < seconds * MIN_BYTES_PER_SECOND

    def close(self) -> None:
        """Give all memory back."""
        if self.partial is not None:
            self._buffers.end(self.partial)
            self.partial = None
        if self._complete is not None:
            self._release_complete()
        self._drop_data()
        # The owner refers to this, and this to the owner.
        del self._on_room

    def _begin_partial(self, size: int, received: memoryview) -> None:
        self.partial = self._buffers.begin(size, received)
        self._drop_data()
        self._expects_large = size > SCRATCH_BYTES
        self._measured_from = (self._clock.monotonic(), len(received))
        if not self._is_drained:
            try:
                self._receive_part(self.partial)
            except BlockingIOError:
                self._is_drained = True

    def _receive_part(self, partial: PartialFrame) -> None:
        if partial.filled == len(partial.buffer):
            if not self._buffers.make_room(partial, self._resume):
                self.is_waiting = True
                raise BlockingIOError
            self._measured_from = (self._clock.monotonic(), partial.filled)
        with memoryview(partial.buffer) as view:
            received = self._transport.recv_into(view[partial.filled : partial.size])
        if not received:
            raise ConnectionResetError(CLOSED)
        self.bytes_received += received
        partial.filled += received
        missing = partial.missing_bytes
        if not missing:
            self._await_bytes(1)
        elif self._awaited > 1 or received >= QUICK_PART_BYTES:
            self._await_bytes(min(missing, AWAITED_BYTES))

    def _resume(self) -> None:
        self.is_waiting = False
        if self.partial is not None:
            self._measured_from = (self._clock.monotonic(), self.partial.filled)
        self._on_room()

    def _await_bytes(self, count: int) -> None:
        if count != self._awaited:
            self._awaited = count
            self._transport.await_bytes(count)

    def _drop_data(self) -> None:
        self._data, self._position, self._is_scratch = NOTHING, 0, False
        if self._held:
            self._release_held()

    def _release_held(self) -> None:
        held, self._held = self._held, 0
        self._buffers.release(held)

    def _release_complete(self) -> None:
        assert self._complete is not None
        self._buffers.end(self._complete)
        self._complete = None
