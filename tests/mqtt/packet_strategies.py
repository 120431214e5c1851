"""Hypothesis strategies for every packet of MQTT 3.1.1 and 5."""

from dataclasses import fields

from hypothesis import strategies as st

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets import properties
from millrace.mqtt.packets.packets import Packet, Version
from millrace.mqtt.packets.properties import NONE, WILL, PacketType, Properties
from millrace.mqtt.packets.reasons import RETURN_CODES, Reason

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
LEVEL = st.text(st.characters(exclude_characters="\0+#/", exclude_categories=["Cs"]), max_size=5)
NAMES = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.one_of(
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4).map("/".join).filter(bool),
    NAMES.map(lambda name: f"{name}/#"),
    NAMES.map(lambda name: f"$share/group/{name}"),
).filter(lambda name: not name.startswith("$share") or name.startswith("$share/group/"))
PACKET_IDS = st.integers(1, 0xFFFF)
QOS = st.integers(0, 2)
REASONS = st.sampled_from(Reason)

VALUES = {
    properties.BYTE: st.integers(0, 1),
    properties.TWO_BYTES: st.integers(1, 0xFFFF),
    properties.FOUR_BYTES: st.integers(1, 0xFFFF_FFFF),
    properties.STRING: TEXT,
    properties.BINARY: st.binary(max_size=20),
}


def properties_of(packet: int) -> st.SearchStrategy[Properties]:
    """Properties that a packet of this type may have."""
    chosen: dict[str, st.SearchStrategy[object]] = {}
    for known in properties.PROPERTIES:
        if packet not in known.packets:
            continue
        if known.name == "user_properties":
            chosen[known.name] = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
        elif known.name == "subscription_identifiers":
            several = 1 if packet == PacketType.SUBSCRIBE else 3
            chosen[known.name] = st.lists(st.integers(1, 268_435_455), max_size=several).map(tuple)
        elif known.name == "response_topic":
            chosen[known.name] = st.none() | NAMES
        else:
            chosen[known.name] = st.none() | VALUES[known.kind]
    empty = Properties()
    built = st.builds(Properties, **chosen)
    return built.map(lambda value: NONE if value == empty else value)


def packets(version: Version) -> st.SearchStrategy[Packet]:
    """Any packet that this version of the protocol has."""
    is_v5 = version is Version.V5

    def extra(kind: int) -> st.SearchStrategy[Properties]:
        return properties_of(kind) if is_v5 else st.just(NONE)

    def acknowledgement(kind: PacketType, make: type[Packet]) -> st.SearchStrategy[Packet]:
        reason = REASONS if is_v5 else st.just(Reason.SUCCESS)
        return st.builds(make, PACKET_IDS, reason, extra(kind))

    will = st.builds(p.Will, NAMES, st.binary(max_size=30), QOS, st.booleans(), extra(WILL))
    username = st.none() | TEXT
    password = st.none() | st.binary(max_size=10)
    connect = st.builds(
        p.Connect,
        TEXT,
        st.just(version),
        st.booleans(),
        st.integers(0, 0xFFFF),
        username,
        password,
        st.none() | will,
        extra(PacketType.CONNECT),
    ).filter(lambda packet: is_v5 or packet.password is None or packet.username is not None)
    options = [st.booleans(), st.booleans(), st.integers(0, 2)] if is_v5 else []
    subscription = st.builds(p.Subscription, FILTERS, QOS, *options).filter(
        lambda wanted: not (wanted.no_local and wanted.filter.startswith("$share"))
    )
    granted = REASONS if is_v5 else st.sampled_from([Reason(code) for code in (0, 1, 2, 0x80)])
    connected = REASONS if is_v5 else st.sampled_from([*RETURN_CODES, Reason.SERVER_UNAVAILABLE])
    publish = st.builds(
        p.Publish,
        NAMES,
        st.binary(max_size=300),
        QOS,
        st.booleans(),
        st.booleans(),
        PACKET_IDS,
        extra(PacketType.PUBLISH),
    ).map(_consistent)
    kinds: list[st.SearchStrategy[Packet]] = [
        connect,
        publish,
        st.builds(p.Connack, connected, st.booleans(), extra(PacketType.CONNACK)),
        acknowledgement(PacketType.PUBACK, p.Puback),
        acknowledgement(PacketType.PUBREC, p.Pubrec),
        acknowledgement(PacketType.PUBREL, p.Pubrel),
        acknowledgement(PacketType.PUBCOMP, p.Pubcomp),
        st.builds(
            p.Subscribe,
            PACKET_IDS,
            st.lists(subscription, min_size=1, max_size=4),
            extra(PacketType.SUBSCRIBE),
        ),
        st.builds(p.Suback, PACKET_IDS, st.lists(granted, max_size=4), extra(PacketType.SUBACK)),
        st.builds(
            p.Unsubscribe,
            PACKET_IDS,
            st.lists(FILTERS, min_size=1, max_size=4),
            extra(PacketType.UNSUBSCRIBE),
        ),
        st.builds(
            p.Unsuback,
            PACKET_IDS,
            st.lists(REASONS, max_size=4) if is_v5 else st.just([]),
            extra(PacketType.UNSUBACK),
        ),
        st.just(p.Pingreq()),
        st.just(p.Pingresp()),
        st.builds(p.Disconnect, REASONS if is_v5 else st.just(Reason.SUCCESS), extra(PacketType.DISCONNECT)),
    ]
    if is_v5:
        kinds.append(st.builds(p.Auth, REASONS, extra(PacketType.AUTH)))
    return st.one_of(kinds)


def _consistent(packet: p.Publish) -> p.Publish:
    """QoS 0 has no packet id and no duplicates."""
    if packet.qos == 0:
        packet.packet_id, packet.duplicate = 0, False
    return packet


assert {field.name for field in fields(Properties)} == {known.name for known in properties.PROPERTIES}
