"""A client that sends any bytes, and reads what comes back."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

# Generous, since it only ends a test that has failed.
RESPONSE_SECONDS = 30.0


class Closed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection without a protocol."""

    def __init__(self, bootstrap: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(RESPONSE_SECONDS)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def read_frame(self) -> bytes:
        """The next response, without its size."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        try:
            received = self.socket.recv(size, socket.MSG_WAITALL)
        except ConnectionResetError as error:
            raise Closed from error
        if len(received) < size:
            raise Closed
        return received

    def drain(self) -> bytes:
        """Everything until the broker closes the connection."""
        received = bytearray()
        try:
            while piece := self.socket.recv(1 << 16):
                received += piece
        except ConnectionResetError:
            pass
        return bytes(received)

    def hang_up(self) -> None:
        """Close the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
