"""Bytes to and from one client: the seam between connections and sockets."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from millrace.net.file_sender import FileSender
from millrace.net.replies import Bytes, FileRange

Callback = Callable[[], None]


class Transport(Protocol):
    """Sends and receives without blocking: an operation that would block raises BlockingIOError.

    Frames, replies and flow control are built on this alone, so that an encrypted transport can take the
    place of a plain one.
    """

    @property
    def peer(self) -> str: ...

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        """The client's verified certificate, None if it has shown none."""

    def recv_into(self, view: memoryview, /) -> int:
        """Receive into `view`; 0 means that the client has closed the connection."""

    def send(self, data: Bytes, *, more: bool) -> int:
        """Send as much as fits and return how much; `more` announces that something follows at once."""

    def send_buffers(self, buffers: Sequence[Bytes], *, more: bool) -> int:
        """Send as much of several buffers as fits and return how much."""

    def send_file(self, piece: FileRange, *, more: bool) -> int:
        """Send as much of a file as fits and return how much."""

    def on_readable(self, callback: Callback | None) -> None:
        """Call `callback` while there is something to receive; None stops it."""

    def on_writable(self, callback: Callback | None) -> None:
        """Call `callback` while there is room to send; None stops it."""

    def await_bytes(self, count: int) -> None:
        """Report readable only when `count` bytes have arrived or the client has closed the connection."""

    def unread_bytes(self) -> int:
        """Bytes that have arrived and are not received yet."""

    def unacknowledged_bytes(self) -> int:
        """Bytes that were sent and that the client's system has not acknowledged yet."""

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket. Owned by the broker loop; not thread-safe."""

    peer_certificate = None

    __slots__ = ("_fd", "_files", "_is_read", "_is_written", "_loop", "_socket", "peer", "recv_into")

    def __init__(
        self, sock: socket.socket, peer: str, *, loop: asyncio.AbstractEventLoop, files: FileSender
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._files = files
        self._is_read = self._is_written = False
        self.peer = peer
        # The socket's own method: receiving is the hottest path of all.
        self.recv_into: Callable[[memoryview], int] = sock.recv_into

    def send(self, data: Bytes, *, more: bool) -> int:
        # The kernel fills whole packets when it knows that more follows.
        return self._socket.send(data, socket.MSG_MORE if more else 0)

    def send_buffers(self, buffers: Sequence[Bytes], *, more: bool) -> int:
        return self._socket.sendmsg(buffers, (), socket.MSG_MORE if more else 0)

    def send_file(self, piece: FileRange, *, more: bool) -> int:
        return self._files.send(self._fd, piece.file.fileno(), piece.position, piece.length, more=more)

    def on_readable(self, callback: Callback | None) -> None:
        if callback is not None:
            self._is_read = True
            self._loop.add_reader(self._fd, callback)
        elif self._is_read:
            self._is_read = False
            self._loop.remove_reader(self._fd)

    def on_writable(self, callback: Callback | None) -> None:
        if callback is not None:
            self._is_written = True
            self._loop.add_writer(self._fd, callback)
        elif self._is_written:
            self._is_written = False
            self._loop.remove_writer(self._fd)

    def await_bytes(self, count: int) -> None:
        # On a connection that is broken, the next attempt to receive says so.
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def unread_bytes(self) -> int:
        return queued_bytes(self._fd, termios.FIONREAD)

    def unacknowledged_bytes(self) -> int:
        return queued_bytes(self._fd, termios.TIOCOUTQ)

    def close(self) -> None:
        self.on_readable(None)
        self.on_writable(None)
        self._socket.close()


def queued_bytes(fd: int, request: int) -> int:
    """The bytes in one of a socket's queues, by an ioctl request; 0 if the connection is broken."""
    with suppress(OSError):
        return int.from_bytes(fcntl.ioctl(fd, request, bytes(4)), sys.byteorder)
    return 0
