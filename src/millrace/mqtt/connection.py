"""One connection: bytes in, packets out. A packet that breaks the rules closes it, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from millrace.mqtt.messages import now_ms
from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.decoding import decode, next_frame
from millrace.mqtt.packets.encoding import encode, encode_publish
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.properties import NONE, PacketType, Properties
from millrace.mqtt.packets.reasons import PacketError, Reason
from millrace.mqtt.sessions.feed import Delivery

if TYPE_CHECKING:
    from millrace.mqtt.counters import Counters
    from millrace.mqtt.settings import Settings

logger = logging.getLogger(__name__)

WRITE_BUFFER = 64 * 1024
FIRST_BYTE = PacketType.CONNECT << 4
MAX_CONNECT_SIZE = 256 * 1024
"""Of a client that is not known yet; CONNECT has a will of up to 64 KB, and properties."""


class Handler(Protocol):
    """Handles the packets of one connection."""

    def handle(self, packet: p.Packet) -> None:
        """Act on a packet. Raises PacketError if it comes at a wrong time."""

    def writable(self) -> None:
        """The client takes more."""

    def closed(self) -> None:
        """The connection has ended."""


class Connection(asyncio.Protocol):
    """A client's socket. Owned by the event loop."""

    __slots__ = (
        "_buffer",
        "_connections",
        "_counters",
        "_handler",
        "_is_closed",
        "_make_handler",
        "_pauses",
        "_settings",
        "_transport",
        "is_writable",
        "keep_alive_seconds",
        "label",
        "last_received",
        "max_packet_size",
        "peer",
        "receive_maximum",
        "version",
    )

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        connections: set[Connection],
        make_handler: Callable[[Connection], Handler],
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._connections = connections
        self._make_handler = make_handler
        self._handler: Handler
        self._transport: asyncio.Transport
        self._buffer: bytearray | None = None
        self._pauses: set[str] = set()
        self._is_closed = False
        self.is_writable = True
        self.version = Version.V3_1_1
        self.peer = ""
        self.label = ""
        """The client id, once it is known."""
        self.receive_maximum = settings.in_flight
        self.max_packet_size: int | None = None
        """The largest packet that the client accepts."""
        self.keep_alive_seconds: float = settings.connect_seconds
        """The connection is closed after this time without a packet; 0: never."""
        self.last_received = 0.0

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        address = transport.get_extra_info("peername")
        self.peer = ":".join(map(str, address[:2])) if isinstance(address, tuple) else "a client"
        self.last_received = asyncio.get_running_loop().time()
        self._connections.add(self)
        self._counters.connections += 1
        self._handler = self._make_handler(self)

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self.label:
            # Until CONNECT is accepted, the time counts from the beginning, however slowly bytes arrive.
            self.last_received = asyncio.get_running_loop().time()
        if self._buffer is not None:
            self._buffer += data
            self._handle_frames(self._buffer)
        else:
            self._handle_frames(data)

    def _handle_frames(self, data: bytes | bytearray) -> None:
        """Handle whole packets, and keep the rest until more arrives."""
        position = 0
        limit = self._settings.max_packet_size
        try:
            if not self.label:
                limit = min(limit, MAX_CONNECT_SIZE)
                if data[0] != FIRST_BYTE:
                    raise PacketError("the first packet is not CONNECT", Reason.PROTOCOL_ERROR)
            while not self._is_closed and "busy" not in self._pauses:
                frame = next_frame(data, position, limit)
                if frame is None:
                    break
                self._handler.handle(decode(frame.first, bytes(data[frame.start : frame.end]), self.version))
                position = frame.end
        except PacketError as error:
            self._counters.bad_packets += 1
            self.close(error.reason, error.message)
        except Exception:
            logger.exception("closing %s: its packet could not be handled", self)
            self.close(Reason.UNSPECIFIED_ERROR, "the server failed")
        if self._is_closed:
            self._buffer = None
        elif isinstance(data, bytearray):
            del data[:position]
            if not data:
                self._buffer = None
        elif position < len(data):
            self._buffer = bytearray(data[position:])

    def pause(self, cause: str) -> None:
        """Read no more until every cause is gone; with the cause "busy", packets wait too."""
        if not self._pauses and not self._is_closed:
            self._transport.pause_reading()
        self._pauses.add(cause)

    def resume(self, cause: str) -> None:
        if cause not in self._pauses:
            return
        self._pauses.discard(cause)
        if self._is_closed:
            return
        if not self._pauses:
            self.last_received = asyncio.get_running_loop().time()
            self._transport.resume_reading()
        if cause == "busy" and self._buffer is not None:
            self._handle_frames(self._buffer)

    def pause_writing(self) -> None:
        self.is_writable = False
        # A client that does not read its acknowledgements must not ask for more of them.
        self.pause("unread")

    def resume_writing(self) -> None:
        self.is_writable = True
        self.resume("unread")
        self._handler.writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._buffer = None
        self._connections.discard(self)
        self._counters.connections -= 1
        self._handler.closed()

    # To the client

    def send(self, packet: p.Packet) -> None:
        if not self._is_closed:
            self._transport.write(encode(packet, self.version))

    def publish(self, delivery: Delivery, packet_id: int, *, duplicate: bool) -> bool:
        """Send a message; False if it is larger than the client accepts."""
        message = delivery.message
        extra = NONE
        if self.version is Version.V5:
            extra = message.properties
            if message.expires_ms is not None or delivery.identifiers:
                extra = _with_delivery(extra, delivery)
        packet = p.Publish(
            message.topic, message.payload, delivery.qos, delivery.retain, duplicate, packet_id, extra
        )
        data = encode_publish(packet, self.version)
        if self.max_packet_size is not None and len(data) > self.max_packet_size:
            return False
        self._counters.messages_sent += 1
        if not self._is_closed:
            self._transport.write(data)
        return True

    def close(self, reason: Reason, text: str) -> None:
        """Close the connection; clients of MQTT 5 get the reason."""
        if self._is_closed:
            return
        logger.warning("closing %s: %s", self, text)
        if self.version is Version.V5 and self.label:
            self.send(p.Disconnect(reason, Properties(reason_string=text[:200])))
        self.finish()

    def finish(self) -> None:
        """Close the connection after what has been sent."""
        if not self._is_closed:
            self._is_closed = True
            self._buffer = None
            self._transport.close()

    def __str__(self) -> str:
        return f"{self.peer} (client {self.label!r})" if self.label else self.peer

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def is_silent(self, now: float) -> bool:
        """Whether the client has sent nothing for longer than it promised."""
        if not self.keep_alive_seconds or self._pauses - {"unread"}:
            # While the server does not read, it cannot know.
            return False
        return now - self.last_received > self.keep_alive_seconds


def _with_delivery(extra: Properties, delivery: Delivery) -> Properties:
    """The properties of a message, with those of its delivery."""
    expires_ms = delivery.message.expires_ms
    left = None if expires_ms is None else max(1, (expires_ms - now_ms() + 999) // 1000)
    return replace(extra, message_expiry_interval=left, subscription_identifiers=delivery.identifiers)
