"""A client without manners: sends any bytes, and reads what comes back."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from millrace.wire.frames import encode_request, read_response
from millrace.wire.schema import Request

# Generous, since it only ends a test that has failed.
ANSWER_SECONDS = 30.0
CLIENT_ID = "fuzz"


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class RawClient:
    """One connection."""

    def __init__(self, bootstrap: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

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

    def ask(self, request: Request, version: int) -> Any:
        """Send a request and wait for its response."""
        self.send_request(request, version)
        return self.response_to(type(request), version)

    def send_request(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        self.send(encode_request(request, version, self._correlation_id, CLIENT_ID))

    def response_to(self, request: type[Request], version: int) -> Any:
        correlation_id, response = read_response(request.response, version, self.read_frame())
        assert correlation_id == self._correlation_id, "this answers another request"
        return response

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        assert size >= 4, f"a response of {size} bytes"
        return self._read(size)

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                piece = self.socket.recv(min(size - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            received += piece
        return bytes(received)

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
        """Go without a goodbye: the broker gets a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
