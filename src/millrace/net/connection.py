"""One client's connection: frames in, handled one at a time in order, replies out.

Reads and writes go straight to a non-blocking socket (event-loop transports cannot send files). A request
whose reply is not there yet stops the reading of further ones, so that a slow or greedy client waits in
its own socket buffer and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from time import monotonic
from typing import Protocol, TypeAlias

from millrace.deferred import Deferred
from millrace.net.buffers import FrameBuffer, FrameBuffers
from millrace.net.busy_polling import BusyPolling
from millrace.net.file_sender import FileSender

logger = logging.getLogger(__name__)

SIZE = struct.Struct(">i")
# How long files are sent in a turn of the loop: one hungry consumer must not starve the others.
SENDING_SECONDS_PER_TURN = 0.001
BUFFERS_PER_SEND = 64
# However many requests of a client wait, others get their turn after so many pieces of replies, or so long.
PIECES_PER_TURN = 64
SECONDS_PER_TURN = 0.002
# What is read at once while memory is short, or of a large frame: enough for any request without records.
SHORT_READ_BYTES = 16 * 1024
# Parts of a frame that are as large as the largest packets come from a sender that is busy sending more: so
# much of it is worth waiting for, or the rest of the frame. Each time it is woken finds its caches cold.
CLOSE_PART_BYTES = 64 * 1024
AWAITED_BYTES = 400_000
# Whoever sends a large frame more slowly than this is not let to hold memory that others wait for.
MIN_FRAME_BYTES_PER_SECOND = 64 * 1024
# The api key, its version and the correlation id.
MIN_FRAME_BYTES = 8


class FileRange(Protocol):
    """A piece of a file, sent without passing through Python."""

    @property
    def file(self) -> FileIO: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...


BYTES = (bytes, bytearray, memoryview)
Bytes: TypeAlias = "bytes | bytearray | memoryview"
Chunk: TypeAlias = "Bytes | FileRange"
Reply: TypeAlias = "Sequence[Chunk] | None"
"""What goes back for a request; None is no answer at all (Produce with acks=0)."""


class CloseConnection(Exception):
    """The client sent what cannot be answered; the text says what."""


LateReply: TypeAlias = "Deferred[Reply | CloseConnection]"
Dispatch: TypeAlias = "Callable[[memoryview], Reply | LateReply]"
"""Handles one frame. The frame's memory is the caller's again when it returns."""


class Connection:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = (
        "_awaited",
        "_backlog",
        "_blocked",
        "_buffers",
        "_busy_polling",
        "_dispatch",
        "_fd",
        "_files",
        "_filled",
        "_frame_began",
        "_frame_end",
        "_held",
        "_loop",
        "_max_frame_bytes",
        "_on_close",
        "_outgoing",
        "_partial",
        "_pending",
        "_reading",
        "_socket",
        "closed",
        "last_active",
        "peer",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        loop: asyncio.AbstractEventLoop,
        buffers: FrameBuffers,
        busy_polling: BusyPolling,
        files: FileSender,
        max_frame_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._buffers = buffers
        self._busy_polling = busy_polling
        self._files = files
        self._max_frame_bytes = max_frame_bytes
        self._on_close = on_close
        self._dispatch: Dispatch
        self.peer = peer
        self.closed = False
        self.last_active = loop.time()

        # What has been received: a frame in the making, or bytes that came behind a request still pending.
        self._partial: FrameBuffer | None = None
        self._filled = 0
        self._frame_end = 0
        self._frame_began = 0.0
        self._backlog: bytes = b""
        # How much of the backlog counts as memory in use.
        self._held = 0
        self._reading = False
        # How many bytes must have come for it to be told.
        self._awaited = 1

        # What is to be sent, and the one request whose reply is not there yet.
        self._outgoing: deque[Chunk] = deque()
        self._blocked = False
        self._pending: LateReply | None = None

    def start(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._resume_reading()

    def stalls(self, now: float, patience_seconds: float) -> bool:
        """Whether it holds memory for a frame that hardly grows, or for what nobody asked it to send yet."""
        if self._partial is None:
            return self._held > 0 and now - self.last_active > patience_seconds
        seconds = now - self._frame_began
        # One that waits for memory itself is not to blame.
        return (
            self._pending is None
            and seconds > patience_seconds
            and self._filled < seconds * MIN_FRAME_BYTES_PER_SECOND
        )

    @property
    def busy(self) -> bool:
        """Whether further requests must wait: for a reply, or for the client to take what it was sent."""
        return self._pending is not None or self._blocked

    # Receiving

    def _resume_reading(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if self._pending is not None or self._blocked:
            self._pause_reading()
            return
        try:
            if self._partial is None:
                self._receive_frames()
            if self._partial is not None and self._pending is None:
                self._receive_part(self._partial)
        except BlockingIOError:
            # No more has come yet.
            pass
        except OSError as error:
            self.close(f"{error.strerror or error}")
            return
        except CloseConnection as error:
            self._refuse(error)
            return
        self.last_active = self._loop.time()
        if self._outgoing and not self._blocked:
            self._send()

    def _receive_frames(self) -> None:
        """Receive behind what is left from last time, which is less than a frame's size prefix."""
        scratch, kept = self._buffers.scratch, len(self._backlog)
        if kept:
            scratch[:kept] = self._backlog
        # Behind a large frame mostly comes another, which is better received where it will stay.
        is_short = self._buffers.full or self._frame_end > len(scratch)
        received = self._receive_into(scratch[kept : kept + SHORT_READ_BYTES] if is_short else scratch[kept:])
        self._backlog = b""
        self._take_frames(scratch[: kept + received])
        if self._partial is None:
            self._frame_end = 0
            # Whoever sends frames so large that they come in parts has other cares than a moment's delay.
            self._busy_polling.handled()

    def _take_frames(self, data: memoryview) -> None:
        """Handle every whole frame in `data` and keep the rest for later."""
        position, end = 0, len(data)
        turn_ends = monotonic() + SECONDS_PER_TURN
        while end - position >= 4:
            if self._pending is not None:
                break
            if len(self._outgoing) >= PIECES_PER_TURN or (position and monotonic() > turn_ends):
                self._end_turn()
                break
            (size,) = SIZE.unpack_from(data, position)
            if not MIN_FRAME_BYTES <= size <= self._max_frame_bytes:
                raise CloseConnection(
                    f"a request of {size} bytes, where {MIN_FRAME_BYTES} to {self._max_frame_bytes} are"
                    " allowed (socket.request.max.bytes); is this a Kafka client?"
                )
            position += 4
            if end - position < size:
                self._begin_partial(size, data[position:])
                return
            self._handle(data[position : position + size])
            position += size
        if position < end:
            self._keep(data[position:])

    def _keep(self, rest: memoryview) -> None:
        self._backlog = bytes(rest)
        if self._pending is not None and not self.closed:
            self._held = len(rest)
            self._buffers.hold(self._held)

    def _take_backlog(self) -> memoryview:
        backlog, self._backlog = self._backlog, b""
        held, self._held = self._held, 0
        if held:
            self._buffers.release(held)
        return memoryview(backlog)

    def _end_turn(self) -> None:
        """Send what there is and leave the rest of the requests for later."""
        go_on = self._pause()
        self._send()
        self._loop.call_soon(go_on)

    def _pause(self) -> Callable[[], None]:
        """Handle nothing more until the returned function is called."""
        pause: LateReply = Deferred()
        pause.then(self._finish)
        self._pending = pause
        return lambda: pause.resolve(None)

    def _begin_partial(self, size: int, received: memoryview) -> None:
        partial = self._buffers.take(size)
        if partial is None:
            self._backlog = SIZE.pack(size) + bytes(received)
            self._wait_for_memory()
            return
        self._partial = partial
        self._frame_end = size
        self._frame_began = self._loop.time()
        self._filled = len(received)
        partial[: self._filled] = received

    def _wait_for_memory(self) -> None:
        """The broker holds as many bytes of unfinished frames as it may: this sender waits its turn."""
        go_on = self._pause()
        self._buffers.wait(lambda: self._loop.call_soon(go_on))

    def _receive_part(self, partial: FrameBuffer) -> None:
        """Receive what has come of a large frame, and handle it once it is whole."""
        if self._filled == len(partial):
            larger = self._buffers.grow(partial, self._frame_end)
            if larger is None:
                self._wait_for_memory()
                return
            self._partial = partial = larger
            self._frame_began = self._loop.time()
        with memoryview(partial) as view:
            received = self._receive_into(view[self._filled : self._frame_end])
        self._filled += received
        if self._filled == self._frame_end:
            self.await_bytes(1)
            self._handle_partial(partial)
        elif self._awaited > 1 or received >= CLOSE_PART_BYTES:
            self.await_bytes(min(self._frame_end - self._filled, AWAITED_BYTES))

    def await_bytes(self, count: int) -> None:
        """Be told when so many bytes have come, or the client has gone, rather than of each packet."""
        if count != self._awaited:
            self._awaited = count
            # Of a client that has gone the next look at it will tell.
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _receive_into(self, view: memoryview) -> int:
        received = self._socket.recv_into(view)
        if not received:
            raise ConnectionResetError("closed by the client")
        return received

    def _handle_partial(self, partial: FrameBuffer) -> None:
        self._partial = None
        try:
            self._handle(memoryview(partial)[: self._frame_end])
        finally:
            self._buffers.give(partial)

    def _release_partial(self) -> None:
        if self._partial is not None:
            self._buffers.give(self._partial)
            self._partial = None

    # Handling

    def _handle(self, frame: memoryview) -> None:
        reply = self._dispatch(frame)
        if isinstance(reply, Deferred):
            self._pending = reply
            reply.then(self._finish)
        elif reply is not None:
            self._outgoing.extend(reply)

    def _finish(self, reply: Reply | CloseConnection) -> None:
        """The pending request has its reply: send it, and go on with what came behind it."""
        self._pending = None
        if self.closed:
            return
        if isinstance(reply, CloseConnection):
            self._refuse(reply)
            return
        if reply is not None:
            self._outgoing.extend(reply)
        if self._outgoing and not self._blocked:
            self._send()
        self._go_on()

    def _go_on(self) -> None:
        if self.closed or self.busy:
            return
        if self._backlog:
            try:
                self._take_frames(self._take_backlog())
            except CloseConnection as error:
                self._refuse(error)
                return
            if self._outgoing and not self._blocked:
                self._send()
        self._resume_reading()

    # Sending

    def _send(self) -> None:
        """Send as much as the socket takes; wait for it to take more where something is left."""
        turn_ends = monotonic() + SENDING_SECONDS_PER_TURN
        try:
            while self._outgoing:
                first = self._outgoing[0]
                if isinstance(first, BYTES):
                    self._send_bytes(first)
                elif monotonic() < turn_ends:
                    self._send_file(first)
                else:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(f"{error.strerror or error}")
            return
        if self._outgoing and not self._blocked:
            self._blocked = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        self.last_active = self._loop.time()
        self._send()
        if not self._outgoing and not self.closed:
            self._blocked = False
            self._loop.remove_writer(self._fd)
            self._go_on()

    def _send_bytes(self, first: Bytes) -> None:
        outgoing = self._outgoing
        if len(outgoing) == 1 or not isinstance(outgoing[1], BYTES):
            # More follows at once: let the kernel fill whole packets.
            sent = self._socket.send(first, socket.MSG_MORE if len(outgoing) > 1 else 0)
            if sent == len(first):
                outgoing.popleft()
                return
        else:
            buffers: list[Bytes] = []
            for chunk in outgoing:
                if not isinstance(chunk, BYTES) or len(buffers) == BUFFERS_PER_SEND:
                    break
                buffers.append(chunk)
            flags = socket.MSG_MORE if len(buffers) < len(outgoing) else 0
            sent = self._socket.sendmsg(buffers, (), flags)
        self._drop_sent(sent)

    def _drop_sent(self, sent: int) -> None:
        outgoing = self._outgoing
        while sent:
            chunk = outgoing[0]
            assert isinstance(chunk, BYTES)
            if sent < len(chunk):
                outgoing[0] = memoryview(chunk)[sent:]
                return
            sent -= len(chunk)
            outgoing.popleft()

    def _send_file(self, piece: FileRange) -> None:
        sent = self._files.send(
            self._fd, piece.file.fileno(), piece.position, piece.length, more=len(self._outgoing) > 1
        )
        if sent == piece.length:
            self._outgoing.popleft()
        elif sent == 0:
            raise OSError("a segment became shorter while it was being sent")
        else:
            self._outgoing[0] = _Rest(piece.file, piece.position + sent, piece.length - sent)

    # Closing

    def _refuse(self, error: CloseConnection) -> None:
        """Close on what cannot be answered, after the replies to what came before it."""
        logger.warning("closing the connection of %s: %s", self.peer, error)
        if self._outgoing and not self._blocked:
            self._send()
        self.close(str(error))

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        logger.debug("connection of %s closed: %s", self.peer, reason)
        self._pause_reading()
        if self._blocked:
            self._loop.remove_writer(self._fd)
        if self._pending is not None:
            self._pending.cancel()
        self._release_partial()
        self._take_backlog()
        self._outgoing.clear()
        self._socket.close()
        self._on_close(self)


class _Rest:
    """What is left of a file range when the socket took only a part."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: FileIO, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
