"""A client that sends and receives packets one by one, to see exactly what the server does."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self, TypeVar

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.decoding import decode, next_frame
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Packet, Version
from millrace.mqtt.packets.properties import NONE, Properties
from millrace.mqtt.packets.reasons import Reason

P = TypeVar("P", bound=Packet)

SECONDS = 30
MAX = 1 << 24


class RawClient:
    """A connection. Every wait has a generous deadline."""

    def __init__(
        self, port: int, client_id: str = "", *, version: Version = Version.V5, **connect: Any
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._buffer = bytearray()
        self._early: list[Packet] = []
        self.version = version
        self.connack: p.Connack | None = None
        if client_id:
            self.send(p.Connect(client_id, version, **connect))
            self.connack = self.expect(p.Connack)

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def finish_sending(self) -> None:
        """Let the server read the end of the stream; it may still send."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Packet | None:
        """The next packet, or None at the end of the connection."""
        while True:
            frame = next_frame(self._buffer, 0, MAX)
            if frame is not None:
                body = bytes(self._buffer[frame.start : frame.end])
                del self._buffer[: frame.end]
                return decode(frame.first, body, self.version)
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data

    def expect(self, kind: type[P]) -> P:
        """The next packet of this type. Messages and acknowledgements overtake each other."""
        for packet in self._early:
            if isinstance(packet, kind):
                self._early.remove(packet)
                return packet
        while True:
            packet = self.receive()
            assert packet is not None, f"the connection ended, {kind.__name__} was expected"
            if isinstance(packet, kind):
                return packet
            assert not isinstance(packet, p.Disconnect), f"expected {kind.__name__}, received {packet}"
            self._early.append(packet)

    def subscribe(
        self, *filters: str, qos: int = 1, properties: Properties = NONE, **options: Any
    ) -> list[Reason]:
        wanted = [p.Subscription(each, qos, **options) for each in filters]
        self.send(p.Subscribe(1, wanted, properties))
        return self.expect(p.Suback).reasons

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 1, packet_id: int = 1, **more: Any
    ) -> Reason | None:
        """Publish a message, and wait until it is acknowledged completely."""
        self.send(p.Publish(topic, payload, qos, packet_id=packet_id if qos else 0, **more))
        if qos == 0:
            return None
        if qos == 1:
            return self.expect(p.Puback).reason
        reason = self.expect(p.Pubrec).reason
        if reason.is_failure:
            return reason
        self.send(p.Pubrel(packet_id))
        return self.expect(p.Pubcomp).reason

    def take(self, *, acknowledge: bool = True) -> p.Publish:
        """The next message, acknowledged as its QoS asks."""
        message = self.expect(p.Publish)
        if acknowledge and message.qos == 1:
            self.send(p.Puback(message.packet_id))
        elif acknowledge and message.qos == 2:
            self.send(p.Pubrec(message.packet_id))
            released = 0
            while released != message.packet_id:
                # Those of messages before may come again after a crash.
                released = self.expect(p.Pubrel).packet_id
                self.send(p.Pubcomp(released))
        return message

    def ping(self) -> None:
        """Wait until the server has handled everything so far; no message may arrive before."""
        self.send(p.Pingreq())
        self.expect(p.Pingresp)
        assert not any(isinstance(packet, p.Publish) for packet in self._early), self._early

    def disconnect(self, reason: Reason = Reason.SUCCESS) -> None:
        self.send(p.Disconnect(reason))
        assert self.receive() is None
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
