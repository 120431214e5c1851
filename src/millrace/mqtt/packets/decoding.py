"""Bytes to packets. Every rule that a packet can break on its own is checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets import properties, topics
from millrace.mqtt.packets.packets import Packet, Version
from millrace.mqtt.packets.primitives import Reader
from millrace.mqtt.packets.properties import NONE, WILL, PacketType, Properties
from millrace.mqtt.packets.reasons import RETURN_CODES, SUBSCRIPTION_FAILED_CODE, PacketError, Reason

_RETURNED = {code: reason for reason, code in RETURN_CODES.items()}


class Frame(NamedTuple):
    """A whole packet in a buffer: its first byte, and where its body starts and ends."""

    first: int
    start: int
    end: int


def next_frame(buffer: bytes | bytearray, position: int, max_packet_size: int) -> Frame | None:
    """The packet at this position, or None until it has arrived. Raises PacketError if it is too large."""
    available = len(buffer)
    length = 0
    for index in range(4):
        place = position + 1 + index
        if place >= available:
            return None
        byte = buffer[place]
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            end = place + 1 + length
            if end - position > max_packet_size:
                raise PacketError(
                    f"a packet of {end - position} bytes is larger than the {max_packet_size} allowed",
                    Reason.PACKET_TOO_LARGE,
                )
            return Frame(buffer[position], place + 1, end) if end <= available else None
    raise PacketError("the length of a packet has more than four bytes")


def decode(first: int, body: bytes, version: Version) -> Packet:
    """The packet that starts with this byte. CONNECT brings its own version. Raises PacketError."""
    kind, flags = first >> 4, first & 0x0F
    if kind == PacketType.PUBLISH:
        return _publish(flags, Reader(body), version)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise PacketError("packet type 0 is reserved")
    if flags != _FLAGS.get(kind, 0):
        raise PacketError(f"{PacketType(kind).name} has flags {flags}, which are reserved")
    reader = Reader(body)
    packet = decoder(reader, version)
    reader.finish()
    return packet


def _publish(flags: int, reader: Reader, version: Version) -> p.Publish:
    qos = flags >> 1 & 3
    if qos == 3:
        raise PacketError("PUBLISH has QoS 3")
    if qos == 0 and flags & 8:
        raise PacketError("PUBLISH with QoS 0 is marked as a duplicate")
    topic = reader.string()
    packet_id = _packet_id(reader) if qos else 0
    extra = properties.read(reader, PacketType.PUBLISH) if version is Version.V5 else NONE
    if topic:
        topics.check_name(topic)
    elif extra.topic_alias is None:
        raise PacketError("PUBLISH has neither a topic nor a topic alias", Reason.PROTOCOL_ERROR)
    if extra.topic_alias == 0:
        raise PacketError("topic alias 0 is not allowed", Reason.TOPIC_ALIAS_INVALID)
    if extra.response_topic is not None:
        topics.check_name(extra.response_topic)
    return p.Publish(topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet_id, extra)


def _packet_id(reader: Reader) -> int:
    packet_id = reader.two_bytes()
    if packet_id == 0:
        raise PacketError("packet id 0 is not allowed", Reason.PROTOCOL_ERROR)
    return packet_id


def _connect(reader: Reader, _: Version) -> p.Connect:
    name, level = reader.string(), reader.byte()
    if name != "MQTT":
        raise PacketError(f"the protocol is {name[:20]!r}, not MQTT", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    if level not in {Version.V3_1_1, Version.V5}:
        raise PacketError(
            f"protocol level {level} is neither MQTT 3.1.1 (4) nor MQTT 5",
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
        )
    version = Version(level)
    flags, keep_alive = reader.byte(), reader.two_bytes()
    if flags & 1:
        raise PacketError("CONNECT has its reserved flag set")
    extra = properties.read(reader, PacketType.CONNECT) if version is Version.V5 else NONE
    client_id = reader.string()
    will = _will(flags, reader, version)
    if version is Version.V3_1_1 and flags & 0x40 and not flags & 0x80:
        raise PacketError("CONNECT has a password without a user name")
    username = reader.string() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    return p.Connect(client_id, version, bool(flags & 2), keep_alive, username, password, will, extra)


def _will(flags: int, reader: Reader, version: Version) -> p.Will | None:
    qos = flags >> 3 & 3
    if not flags & 4:
        if flags & 0x38:
            raise PacketError("CONNECT has options of a will, and no will")
        return None
    if qos == 3:
        raise PacketError("the will has QoS 3")
    extra = properties.read(reader, WILL) if version is Version.V5 else NONE
    topic = reader.string()
    topics.check_name(topic)
    return p.Will(topic, reader.binary(), qos, bool(flags & 0x20), extra)


def _connack(reader: Reader, version: Version) -> p.Connack:
    flags, code = reader.byte(), reader.byte()
    if flags > 1:
        raise PacketError(f"CONNACK has flags {flags}, which are reserved")
    if version is Version.V3_1_1:
        return p.Connack(_RETURNED.get(code, Reason.SERVER_UNAVAILABLE), bool(flags))
    return p.Connack(_reason(code), bool(flags), properties.read(reader, PacketType.CONNACK))


def _acknowledgement(kind: PacketType, make: type[p.Acknowledgement]) -> Callable[[Reader, Version], Packet]:
    def decode_acknowledgement(reader: Reader, version: Version) -> Packet:
        packet_id = _packet_id(reader)
        reason, extra = _reason_and_properties(reader, version, kind)
        packet = make(packet_id, reason, extra)
        assert isinstance(packet, p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp)
        return packet

    return decode_acknowledgement


def _reason_and_properties(reader: Reader, version: Version, kind: PacketType) -> tuple[Reason, Properties]:
    """The end of a packet that may leave out both when all is well."""
    if version is Version.V3_1_1 or reader.is_done:
        return Reason.SUCCESS, NONE
    reason = _reason(reader.byte())
    return reason, NONE if reader.is_done else properties.read(reader, kind)


def _reason(code: int) -> Reason:
    try:
        return Reason(code)
    except ValueError:
        raise PacketError(f"there is no reason code 0x{code:02x}") from None


def _subscribe(reader: Reader, version: Version) -> p.Subscribe:
    packet_id = _packet_id(reader)
    extra = properties.read(reader, PacketType.SUBSCRIBE) if version is Version.V5 else NONE
    subscriptions = []
    while not reader.is_done:
        topic_filter, options = reader.string(), reader.byte()
        qos, retain_handling = options & 3, options >> 4 & 3
        if qos == 3 or retain_handling == 3 or options >> (6 if version is Version.V5 else 2):
            raise PacketError(f"SUBSCRIBE has options 0x{options:02x}", Reason.PROTOCOL_ERROR)
        topics.check_filter(topic_filter)
        no_local = bool(options & 4)
        if no_local and topics.is_shared(topic_filter):
            raise PacketError("a shared subscription has the option no local", Reason.PROTOCOL_ERROR)
        subscriptions.append(p.Subscription(topic_filter, qos, no_local, bool(options & 8), retain_handling))
    if not subscriptions:
        raise PacketError("SUBSCRIBE has no topic filter", Reason.PROTOCOL_ERROR)
    return p.Subscribe(packet_id, subscriptions, extra)


def _suback(reader: Reader, version: Version) -> p.Suback:
    packet_id = _packet_id(reader)
    extra = properties.read(reader, PacketType.SUBACK) if version is Version.V5 else NONE
    codes = reader.rest()
    if version is Version.V3_1_1 and any(code > 2 and code != SUBSCRIPTION_FAILED_CODE for code in codes):
        raise PacketError("SUBACK has a code that MQTT 3.1.1 does not know")
    return p.Suback(packet_id, [_reason(code) for code in codes], extra)


def _unsubscribe(reader: Reader, version: Version) -> p.Unsubscribe:
    packet_id = _packet_id(reader)
    extra = properties.read(reader, PacketType.UNSUBSCRIBE) if version is Version.V5 else NONE
    filters = []
    while not reader.is_done:
        filters.append(reader.string())
        topics.check_filter(filters[-1])
    if not filters:
        raise PacketError("UNSUBSCRIBE has no topic filter", Reason.PROTOCOL_ERROR)
    return p.Unsubscribe(packet_id, filters, extra)


def _unsuback(reader: Reader, version: Version) -> p.Unsuback:
    packet_id = _packet_id(reader)
    if version is Version.V3_1_1:
        return p.Unsuback(packet_id)
    extra = properties.read(reader, PacketType.UNSUBACK)
    return p.Unsuback(packet_id, [_reason(code) for code in reader.rest()], extra)


def _disconnect(reader: Reader, version: Version) -> p.Disconnect:
    return p.Disconnect(*_reason_and_properties(reader, version, PacketType.DISCONNECT))


def _auth(reader: Reader, version: Version) -> p.Auth:
    if version is Version.V3_1_1:
        raise PacketError("AUTH is a packet of MQTT 5")
    return p.Auth(*_reason_and_properties(reader, version, PacketType.AUTH))


_FLAGS: dict[int, int] = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
_DECODERS: dict[int, Callable[[Reader, Version], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _acknowledgement(PacketType.PUBACK, p.Puback),
    PacketType.PUBREC: _acknowledgement(PacketType.PUBREC, p.Pubrec),
    PacketType.PUBREL: _acknowledgement(PacketType.PUBREL, p.Pubrel),
    PacketType.PUBCOMP: _acknowledgement(PacketType.PUBCOMP, p.Pubcomp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda reader, version: p.Pingreq(),
    PacketType.PINGRESP: lambda reader, version: p.Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
