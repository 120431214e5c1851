"""Packets to bytes."""

from __future__ import annotations

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets import properties
from millrace.mqtt.packets.packets import Packet, Version
from millrace.mqtt.packets.primitives import binary, string, two_bytes, varint
from millrace.mqtt.packets.properties import NONE, WILL, PacketType, Properties
from millrace.mqtt.packets.reasons import (
    RETURN_CODES,
    SERVER_UNAVAILABLE_CODE,
    SUBSCRIPTION_FAILED_CODE,
    Reason,
)

_ACKNOWLEDGEMENTS = {
    p.Puback: (PacketType.PUBACK, 0),
    p.Pubrec: (PacketType.PUBREC, 0),
    p.Pubrel: (PacketType.PUBREL, 2),
    p.Pubcomp: (PacketType.PUBCOMP, 0),
}
PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
PINGRESP = bytes((PacketType.PINGRESP << 4, 0))


def encode(packet: Packet, version: Version) -> bytes:
    """The bytes of a packet. MQTT 3.1.1 has no properties, and fewer reasons."""
    match packet:
        case p.Publish():
            return encode_publish(packet, version)
        case p.Puback() | p.Pubrec() | p.Pubrel() | p.Pubcomp():
            kind, flags = _ACKNOWLEDGEMENTS[type(packet)]
            body = two_bytes(packet.packet_id)
            return _frame(kind, flags, body + _ending(packet.reason, packet.properties, kind, version))
        case p.Connect():
            return _frame(PacketType.CONNECT, 0, _connect(packet))
        case p.Connack():
            return _frame(PacketType.CONNACK, 0, _connack(packet, version))
        case p.Subscribe():
            return _frame(PacketType.SUBSCRIBE, 2, _subscribe(packet, version))
        case p.Suback():
            return _frame(PacketType.SUBACK, 0, _suback(packet, version))
        case p.Unsubscribe():
            filters = b"".join(map(string, packet.filters))
            head = _head(packet.packet_id, packet.properties, PacketType.UNSUBSCRIBE, version)
            return _frame(PacketType.UNSUBSCRIBE, 2, head + filters)
        case p.Unsuback():
            head = _head(packet.packet_id, packet.properties, PacketType.UNSUBACK, version)
            return _frame(
                PacketType.UNSUBACK, 0, head + bytes(packet.reasons if version is Version.V5 else [])
            )
        case p.Pingreq():
            return PINGREQ
        case p.Pingresp():
            return PINGRESP
        case p.Disconnect():
            ending = _ending(packet.reason, packet.properties, PacketType.DISCONNECT, version)
            return _frame(PacketType.DISCONNECT, 0, ending)
        case p.Auth():
            return _frame(
                PacketType.AUTH, 0, _ending(packet.reason, packet.properties, PacketType.AUTH, version)
            )


def encode_publish(packet: p.Publish, version: Version) -> bytes:
    topic = packet.topic.encode()
    head = len(topic).to_bytes(2, "big") + topic
    if packet.qos:
        head += packet.packet_id.to_bytes(2, "big")
    if version is Version.V5:
        head += properties.write(packet.properties, PacketType.PUBLISH)
    first = PacketType.PUBLISH << 4 | packet.duplicate << 3 | packet.qos << 1 | packet.retain
    return b"%c%b%b%b" % (first, varint(len(head) + len(packet.payload)), head, packet.payload)


def _frame(kind: int, flags: int, body: bytes) -> bytes:
    return bytes((kind << 4 | flags,)) + varint(len(body)) + body


def _head(packet_id: int, extra: Properties, kind: PacketType, version: Version) -> bytes:
    return two_bytes(packet_id) + (properties.write(extra, kind) if version is Version.V5 else b"")


def _ending(reason: Reason, extra: Properties, kind: PacketType, version: Version) -> bytes:
    """Reason and properties, which are left out when all is well."""
    if version is Version.V3_1_1 or (reason is Reason.SUCCESS and extra is NONE):
        return b""
    if extra is NONE:
        return bytes((reason,))
    return bytes((reason,)) + properties.write(extra, kind)


def _connect(packet: p.Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    body = string("MQTT") + bytes((packet.version, flags)) + two_bytes(packet.keep_alive)
    is_v5 = packet.version is Version.V5
    if is_v5:
        body += properties.write(packet.properties, PacketType.CONNECT)
    body += string(packet.client_id)
    if will is not None:
        body += properties.write(will.properties, WILL) if is_v5 else b""
        body += string(will.topic) + binary(will.payload)
    if packet.username is not None:
        body += string(packet.username)
    if packet.password is not None:
        body += binary(packet.password)
    return body


def _connack(packet: p.Connack, version: Version) -> bytes:
    if version is Version.V3_1_1:
        return bytes((packet.session_present, RETURN_CODES.get(packet.reason, SERVER_UNAVAILABLE_CODE)))
    return bytes((packet.session_present, packet.reason)) + properties.write(
        packet.properties, PacketType.CONNACK
    )


def _subscribe(packet: p.Subscribe, version: Version) -> bytes:
    body = bytearray(_head(packet.packet_id, packet.properties, PacketType.SUBSCRIBE, version))
    for wanted in packet.subscriptions:
        options = wanted.qos
        if version is Version.V5:
            options |= wanted.no_local << 2 | wanted.retain_as_published << 3 | wanted.retain_handling << 4
        body += string(wanted.filter)
        body.append(options)
    return bytes(body)


def _suback(packet: p.Suback, version: Version) -> bytes:
    codes: list[int] = list(packet.reasons)
    if version is Version.V3_1_1:
        codes = [code if code <= Reason.GRANTED_QOS_2 else SUBSCRIPTION_FAILED_CODE for code in codes]
    return _head(packet.packet_id, packet.properties, PacketType.SUBACK, version) + bytes(codes)
