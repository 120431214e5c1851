"""Replies of one connection on their way out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from io import FileIO

from millrace.clock import Clock
from millrace.net.replies import BYTES, Bytes, Chunk, FileRange
from millrace.net.transport import Transport

BUFFERS_PER_SEND = 64
# Replies are sent when there is this much of them, rather than when every request has been handled.
MAX_GATHERED_BYTES = 256 * 1024
# All connections that have more to send than fits share this time, before the broker looks for new requests.
SENDING_SECONDS = 0.001


class Outbox:
    """Sends replies in order, as far as the client takes them. Owned by the broker loop; not thread-safe."""

    __slots__ = ("_clock", "_senders", "_transport", "bytes_in_memory", "bytes_sent", "chunks")

    def __init__(self, transport: Transport, clock: Clock, senders: Sized) -> None:
        self._transport = transport
        self._clock = clock
        # The connections that have more to send than their clients take.
        self._senders = senders
        self.chunks: deque[Chunk] = deque()
        self.bytes_in_memory = 0
        """Unsent bytes, without those in files."""
        self.bytes_sent = 0

    def add(self, reply: Sequence[Chunk]) -> bool:
        """Add a reply; returns whether there is enough to send."""
        for chunk in reply:
            if isinstance(chunk, BYTES):
                self.bytes_in_memory += len(chunk)
        self.chunks.extend(reply)
        return self.bytes_in_memory >= MAX_GATHERED_BYTES or len(self.chunks) >= BUFFERS_PER_SEND

    def send(self) -> None:
        """Send until the client takes no more, or for a share of the time for sending."""
        chunks = self.chunks
        ends = 0.0
        try:
            while chunks:
                first = chunks[0]
                if not isinstance(first, BYTES):
                    self._send_file(first)
                elif len(chunks) == 1:
                    self._drop_sent(self._transport.send(first, more=False))
                else:
                    self._send_gathered()
                if chunks:
                    now = self._clock.monotonic()
                    ends = ends or now + SENDING_SECONDS / max(len(self._senders), 1)
                    if now >= ends:
                        return
        except BlockingIOError:
            return

    def _send_gathered(self) -> None:
        buffers: list[Bytes] = []
        for chunk in self.chunks:
            if not isinstance(chunk, BYTES) or len(buffers) == BUFFERS_PER_SEND:
                break
            buffers.append(chunk)
        self._drop_sent(self._transport.send_buffers(buffers, more=len(buffers) < len(self.chunks)))

    def _drop_sent(self, sent: int) -> None:
        chunks = self.chunks
        self.bytes_sent += sent
        self.bytes_in_memory -= sent
        while chunks:
            chunk = chunks[0]
            if not isinstance(chunk, BYTES):
                return
            if sent < len(chunk):
                chunks[0] = memoryview(chunk)[sent:]
                return
            # Empty chunks go along with those before them.
            sent -= len(chunk)
            chunks.popleft()

    def _send_file(self, piece: FileRange) -> None:
        sent = self._transport.send_file(piece, more=len(self.chunks) > 1)
        self.bytes_sent += sent
        if sent == piece.length:
            self.chunks.popleft()
        elif sent == 0:
            raise OSError("a segment became shorter while it was being sent")
        else:
            self.chunks[0] = _Rest(piece.file, piece.position + sent, piece.length - sent)

    def clear(self) -> None:
        self.chunks.clear()
        self.bytes_in_memory = 0


class _Rest:
    """The part of a file range that is still to be sent."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: FileIO, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
