"""An encrypted TCP socket. Everything is copied; plain connections keep their shorter path."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import termios
from collections.abc import Callable, Mapping, Sequence

from millrace.net.replies import Bytes, FileRange
from millrace.net.transport import Callback, queued_bytes

# Read from a file at a time. OpenSSL sends records of 16 KiB.
FILE_PIECE_BYTES = 64 * 1024

_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport:
    """A `Transport` over a TLS socket. Owned by the broker loop; not thread-safe.

    OpenSSL decrypts whole records. What a caller has not received of a record is not in the socket any more,
    so the loop would not report it: it is reported here.
    """

    __slots__ = (
        "_fd",
        "_is_reported",
        "_is_waiting_to_write",
        "_loop",
        "_on_readable",
        "_on_writable",
        "_tls",
        "peer",
    )

    def __init__(
        self, sock: socket.socket, peer: str, *, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext
    ) -> None:
        """Raises OSError if the client has closed the connection already."""
        self._tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._fd = self._tls.fileno()
        self._loop = loop
        self._on_readable: Callback | None = None
        self._on_writable: Callback | None = None
        # Whether the handshake, or a read, waits for room to send.
        self._is_waiting_to_write = False
        # Whether the loop is going to report bytes that OpenSSL holds.
        self._is_reported = False
        self.peer = peer

    # The handshake

    def handshake(self, done: Callable[[OSError | None], None]) -> None:
        """Begin the handshake, and call `done` at its end with the error if it failed."""

        def proceed() -> None:
            try:
                self._tls.do_handshake()
            except _WOULD_BLOCK as blocked:
                self._wait_to_write(blocked)
                return
            except (OSError, ValueError) as error:
                self.on_readable(None)
                done(error if isinstance(error, OSError) else OSError(str(error)))
                return
            self.on_readable(None)
            done(None)

        self.on_readable(proceed)
        proceed()

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        # Empty for a certificate that was not verified.
        return self._tls.getpeercert() or None

    # Receiving

    def recv_into(self, view: memoryview, /) -> int:
        tls, received, wanted = self._tls, 0, len(view)
        try:
            while received < wanted:
                count = tls.recv_into(view[received:])
                if not count:
                    break
                received += count
        except _WOULD_BLOCK as blocked:
            self._wait_to_write(blocked)
            if not received:
                raise BlockingIOError from None
        except OSError:
            # What was received before counts; the next attempt meets the error again.
            if not received:
                raise
        if received == wanted:
            self._report_held()
        return received

    def _report_held(self) -> None:
        """Call the reader once more for bytes that the socket no longer has."""
        if self._on_readable is not None and not self._is_reported and self._tls.pending():
            self._is_reported = True
            self._loop.call_soon(self._read_held)

    def _read_held(self) -> None:
        self._is_reported = False
        if self._on_readable is not None and self._tls.pending():
            self._on_readable()
            self._report_held()

    # Sending

    def send(self, data: Bytes, *, more: bool) -> int:
        return self._send(memoryview(data))

    def send_buffers(self, buffers: Sequence[Bytes], *, more: bool) -> int:
        return self._send(memoryview(b"".join(buffers)))

    def send_file(self, piece: FileRange, *, more: bool) -> int:
        content = os.pread(piece.file.fileno(), min(piece.length, FILE_PIECE_BYTES), piece.position)
        return self._send(memoryview(content)) if content else 0

    def _send(self, data: memoryview) -> int:
        """Send records until the socket is full.

        OpenSSL keeps a record that it could not send and expects its bytes again. The caller repeats what was
        not sent, so it gets them.
        """
        sent = 0
        try:
            while sent < len(data):
                sent += self._tls.send(data[sent:])
        except _WOULD_BLOCK:
            if not sent:
                raise BlockingIOError from None
        return sent

    # Events

    def on_readable(self, callback: Callback | None) -> None:
        before, self._on_readable = self._on_readable, callback
        if callback is not None:
            self._loop.add_reader(self._fd, callback)
            self._report_held()
        elif before is not None:
            self._loop.remove_reader(self._fd)
            self._stop_waiting_to_write()

    def on_writable(self, callback: Callback | None) -> None:
        before, self._on_writable = self._on_writable, callback
        if callback is not None:
            self._is_waiting_to_write = False
            self._loop.add_writer(self._fd, callback)
        elif before is not None:
            self._loop.remove_writer(self._fd)

    def _wait_to_write(self, blocked: OSError) -> None:
        """Try to receive again when there is room to send: a handshake or a new key has to be sent first."""
        if isinstance(blocked, ssl.SSLWantWriteError) and self._on_writable is None:
            self._is_waiting_to_write = True
            self._loop.add_writer(self._fd, self._receive_again)

    def _receive_again(self) -> None:
        self._stop_waiting_to_write()
        if self._on_readable is not None:
            self._on_readable()

    def _stop_waiting_to_write(self) -> None:
        if self._is_waiting_to_write:
            self._is_waiting_to_write = False
            self._loop.remove_writer(self._fd)

    def await_bytes(self, count: int) -> None:
        """Every packet is reported: OpenSSL may hold a part of those that the caller waits for."""

    def unread_bytes(self) -> int:
        return self._tls.pending() + queued_bytes(self._fd, termios.FIONREAD)

    def unacknowledged_bytes(self) -> int:
        return queued_bytes(self._fd, termios.TIOCOUTQ)

    def close(self) -> None:
        self.on_readable(None)
        self._stop_waiting_to_write()
        self.on_writable(None)
        # No orderly goodbye: a client that does not read would block it.
        self._tls.close()
