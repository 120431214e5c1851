"""MQTT over WebSockets: the frames of a WebSocket around the bytes of a connection."""

from __future__ import annotations

import asyncio
import http
import ipaddress
import logging
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

if TYPE_CHECKING:
    from millrace.mqtt.connection import Connection

logger = logging.getLogger(__name__)

SUBPROTOCOL = Subprotocol("mqtt")
_PAYLOAD = (Opcode.BINARY, Opcode.CONT)


class WebSocket(asyncio.Protocol):
    """The socket of a WebSocket, and the transport of the connection inside. Owned by the event loop."""

    def __init__(self, connection: Connection, max_packet_size: int, origins: Collection[str] = ()) -> None:
        self._connection = connection
        self._origins = origins
        # A frame may hold several packets, and a packet may span frames.
        self._frames = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=max_packet_size + 65_536)
        self._socket: asyncio.Transport

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._connection.connection_made(cast("asyncio.Transport", self))

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame) and event.opcode in _PAYLOAD:
                self._connection.data_received(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                logger.warning("closing %s: MQTT is sent in text frames", self._connection)
                self._frames.fail(CloseCode.UNSUPPORTED_DATA, "MQTT uses binary frames")
        self._flush()

    def _answer(self, request: Request) -> None:
        """Accept the handshake, unless it comes from a page of another site."""
        origin = request.headers.get("Origin")
        if origin is None or origin in self._origins or is_own_page(origin, request.headers.get("Host", "")):
            self._frames.send_response(self._frames.accept(request))
            return
        logger.warning("refusing %s: pages of %s may not use this server", self._connection, origin[:100])
        text = f"pages of {origin} may not use this server\n"
        self._frames.send_response(self._frames.reject(http.HTTPStatus.FORBIDDEN, text))

    def eof_received(self) -> None:
        self._frames.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)

    def _flush(self) -> None:
        for data in self._frames.data_to_send():
            if data:
                self._socket.write(data)
            else:
                # The end of the stream.
                self._socket.close()
        if self._frames.state is State.CLOSED or self._frames.close_expected():
            self._socket.close()

    # The transport of the connection

    def write(self, data: bytes) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_binary(data)
            self._flush()

    def close(self) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self._socket.close()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


def is_own_page(origin: str, host: str) -> bool:
    """Whether a page was loaded from this server's own address.

    A name that is not this machine's may lead here for the page's sake (DNS rebinding).
    """
    name = urlsplit(f"//{host}").hostname or ""
    if urlsplit(origin).netloc.lower() != host.lower():
        return False
    if name in ("localhost", socket.gethostname().lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
