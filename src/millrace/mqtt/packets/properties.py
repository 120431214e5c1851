"""The properties of MQTT 5: which there are, their types, and the packets that may have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from millrace.mqtt.packets import primitives
from millrace.mqtt.packets.primitives import Reader
from millrace.mqtt.packets.reasons import PacketError, Reason


class PacketType(IntEnum):
    """The first four bits of a packet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


# Will properties are a part of CONNECT with a list of their own.
WILL = 0


@dataclass(slots=True, frozen=True, kw_only=True)
class Properties:
    """The properties of one packet; None stands for one that is absent."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


NONE = Properties()
"""Packets without properties share this one."""


class Kind(NamedTuple):
    """A type of property values."""

    read: Callable[[Reader], Any]
    write: Callable[[Any], bytes]


def _read_pair(reader: Reader) -> tuple[str, str]:
    return reader.string(), reader.string()


def _write_pair(pair: tuple[str, str]) -> bytes:
    return primitives.string(pair[0]) + primitives.string(pair[1])


BYTE = Kind(Reader.byte, lambda value: value.to_bytes(1, "big"))
TWO_BYTES = Kind(Reader.two_bytes, primitives.two_bytes)
FOUR_BYTES = Kind(Reader.four_bytes, lambda value: value.to_bytes(4, "big"))
VARINT = Kind(Reader.varint, primitives.varint)
STRING = Kind(Reader.string, primitives.string)
BINARY = Kind(Reader.binary, primitives.binary)
PAIR = Kind(_read_pair, _write_pair)


class Property(NamedTuple):
    """One property: its name as a field, its type, and the packets that may have it."""

    identifier: int
    name: str
    kind: Kind
    packets: tuple[int, ...]


_T = PacketType
_ACKS = (_T.PUBACK, _T.PUBREC, _T.PUBREL, _T.PUBCOMP, _T.SUBACK, _T.UNSUBACK)

PROPERTIES = (
    Property(0x01, "payload_format_indicator", BYTE, (_T.PUBLISH, WILL)),
    Property(0x02, "message_expiry_interval", FOUR_BYTES, (_T.PUBLISH, WILL)),
    Property(0x03, "content_type", STRING, (_T.PUBLISH, WILL)),
    Property(0x08, "response_topic", STRING, (_T.PUBLISH, WILL)),
    Property(0x09, "correlation_data", BINARY, (_T.PUBLISH, WILL)),
    Property(0x0B, "subscription_identifiers", VARINT, (_T.PUBLISH, _T.SUBSCRIBE)),
    Property(0x11, "session_expiry_interval", FOUR_BYTES, (_T.CONNECT, _T.CONNACK, _T.DISCONNECT)),
    Property(0x12, "assigned_client_identifier", STRING, (_T.CONNACK,)),
    Property(0x13, "server_keep_alive", TWO_BYTES, (_T.CONNACK,)),
    Property(0x15, "authentication_method", STRING, (_T.CONNECT, _T.CONNACK, _T.AUTH)),
    Property(0x16, "authentication_data", BINARY, (_T.CONNECT, _T.CONNACK, _T.AUTH)),
    Property(0x17, "request_problem_information", BYTE, (_T.CONNECT,)),
    Property(0x18, "will_delay_interval", FOUR_BYTES, (WILL,)),
    Property(0x19, "request_response_information", BYTE, (_T.CONNECT,)),
    Property(0x1A, "response_information", STRING, (_T.CONNACK,)),
    Property(0x1C, "server_reference", STRING, (_T.CONNACK, _T.DISCONNECT)),
    Property(0x1F, "reason_string", STRING, (_T.CONNACK, *_ACKS, _T.DISCONNECT, _T.AUTH)),
    Property(0x21, "receive_maximum", TWO_BYTES, (_T.CONNECT, _T.CONNACK)),
    Property(0x22, "topic_alias_maximum", TWO_BYTES, (_T.CONNECT, _T.CONNACK)),
    Property(0x23, "topic_alias", TWO_BYTES, (_T.PUBLISH,)),
    Property(0x24, "maximum_qos", BYTE, (_T.CONNACK,)),
    Property(0x25, "retain_available", BYTE, (_T.CONNACK,)),
    Property(
        0x26, "user_properties", PAIR, tuple(t for t in (WILL, *_T) if t not in {_T.PINGREQ, _T.PINGRESP})
    ),
    Property(0x27, "maximum_packet_size", FOUR_BYTES, (_T.CONNECT, _T.CONNACK)),
    Property(0x28, "wildcard_subscription_available", BYTE, (_T.CONNACK,)),
    Property(0x29, "subscription_identifier_available", BYTE, (_T.CONNACK,)),
    Property(0x2A, "shared_subscription_available", BYTE, (_T.CONNACK,)),
)
_BY_IDENTIFIER = {known.identifier: known for known in PROPERTIES}
_SEVERAL = frozenset({"user_properties", "subscription_identifiers"})
_NOT_ZERO = frozenset({"receive_maximum", "maximum_packet_size", "subscription_identifiers"})


def read(reader: Reader, packet: int) -> Properties:
    """Read the properties of a packet of this type."""
    length = reader.varint()
    if length == 0:
        return NONE
    part = reader.part(length)
    found: dict[str, Any] = {}
    while not part.is_done:
        identifier = part.varint()
        known = _BY_IDENTIFIER.get(identifier)
        if known is None:
            raise PacketError(f"there is no property 0x{identifier:02x}")
        if packet not in known.packets:
            raise PacketError(f"property {known.name} does not belong to this packet", Reason.PROTOCOL_ERROR)
        value = known.kind.read(part)
        _check(known, value)
        if known.name in _SEVERAL:
            found.setdefault(known.name, []).append(value)
        elif known.name in found:
            raise PacketError(f"property {known.name} appears twice", Reason.PROTOCOL_ERROR)
        else:
            found[known.name] = value
    for name in _SEVERAL & found.keys():
        found[name] = tuple(found[name])
    if packet == PacketType.SUBSCRIBE and len(found.get("subscription_identifiers", ())) > 1:
        raise PacketError("property subscription_identifiers appears twice", Reason.PROTOCOL_ERROR)
    return Properties(**found)


def _check(known: Property, value: Any) -> None:
    if known.kind is BYTE and value > 1:
        raise PacketError(f"property {known.name} is {value}, not 0 or 1", Reason.PROTOCOL_ERROR)
    if value == 0 and known.name in _NOT_ZERO:
        raise PacketError(f"property {known.name} is 0", Reason.PROTOCOL_ERROR)


def write(properties: Properties, packet: int) -> bytes:
    """The properties of a packet of this type, with their length before them."""
    if properties is NONE:
        return b"\0"
    encoded = bytearray()
    for known in PROPERTIES:
        value = getattr(properties, known.name)
        if value is None or value == ():
            continue
        if packet not in known.packets:
            raise PacketError(f"property {known.name} does not belong to this packet", Reason.PROTOCOL_ERROR)
        for single in value if known.name in _SEVERAL else (value,):
            encoded.append(known.identifier)
            encoded += known.kind.write(single)
    return primitives.varint(len(encoded)) + encoded
