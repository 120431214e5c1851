"""The codec of MQTT: round trips, packets of another implementation, and bytes that break the rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.decoding import decode, next_frame
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Packet, Version
from millrace.mqtt.packets.primitives import Reader
from millrace.mqtt.packets.properties import PacketType, Properties, read
from millrace.mqtt.packets.reasons import PacketError, Reason

from .packet_strategies import packets

VERSIONS = st.sampled_from(Version)
MAX = 1 << 20


def decoded(data: bytes, version: Version = Version.V5) -> Packet:
    frame = next_frame(data, 0, MAX)
    assert frame is not None
    assert frame.end == len(data)
    return decode(frame.first, data[frame.start : frame.end], version)


@given(VERSIONS.flatmap(lambda version: st.tuples(st.just(version), packets(version))))
@settings(max_examples=80, deadline=None)
def test_every_packet_survives_a_round_trip(case: tuple[Version, Packet]) -> None:
    version, packet = case
    assert decoded(encode(packet, version), version) == packet


@given(st.integers(0, 255), st.binary(max_size=60), VERSIONS)
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_a_packet_or_a_packet_error(first: int, body: bytes, version: Version) -> None:
    try:
        packet = decode(first, body, version)
    except PacketError as error:
        assert error.reason.is_failure
    else:
        encode(packet, version)


@given(VERSIONS.flatmap(lambda version: st.tuples(st.just(version), packets(version))), st.data())
@settings(max_examples=80, deadline=None)
def test_damaged_packets_are_a_packet_or_a_packet_error(
    case: tuple[Version, Packet], data: st.DataObject
) -> None:
    version, packet = case
    encoded = bytearray(encode(packet, version))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = next_frame(encoded, 0, MAX)
        if frame is not None:
            decode(frame.first, bytes(encoded[frame.start : frame.end]), version)
    except PacketError as error:
        assert error.reason.is_failure


@given(st.lists(packets(Version.V5), min_size=1, max_size=4), st.data())
@settings(max_examples=30, deadline=None)
def test_packets_are_cut_from_a_stream_wherever_it_is_split(
    several: list[Packet], data: st.DataObject
) -> None:
    stream = b"".join(encode(packet, Version.V5) for packet in several)
    split = data.draw(st.integers(0, len(stream)))
    found: list[Packet] = []
    buffer = bytearray()
    for part in (stream[:split], stream[split:]):
        buffer += part
        position = 0
        while frame := next_frame(buffer, position, MAX):
            found.append(decode(frame.first, bytes(buffer[frame.start : frame.end]), Version.V5))
            position = frame.end
        del buffer[:position]
    assert found == several
    assert not buffer


def test_properties_are_those_of_another_implementation() -> None:
    theirs = PahoProperties(PacketTypes.PUBLISH)
    theirs.ContentType = "text/plain"
    theirs.MessageExpiryInterval = 70_000
    theirs.UserProperty = ("unit", "celsius")
    theirs.CorrelationData = b"\0\1"
    expected = Properties(
        content_type="text/plain",
        message_expiry_interval=70_000,
        user_properties=(("unit", "celsius"),),
        correlation_data=b"\0\1",
    )
    assert read(Reader(theirs.pack()), PacketType.PUBLISH) == expected


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        ("00 00", Reason.MALFORMED_PACKET, "type 0 is reserved"),
        ("36 05 00 01 61 00 01", Reason.MALFORMED_PACKET, "QoS 3"),
        ("38 03 00 01 61", Reason.MALFORMED_PACKET, "duplicate"),
        ("32 05 00 01 61 00 00", Reason.PROTOCOL_ERROR, "packet id 0"),
        ("30 03 00 01 2b", Reason.TOPIC_NAME_INVALID, "wildcard"),
        ("30 04 00 02 c3 28", Reason.MALFORMED_PACKET, "UTF-8"),
        ("30 05 00 03 61 00 62", Reason.MALFORMED_PACKET, "null character"),
        ("30 05 00 03 ed a0 80", Reason.MALFORMED_PACKET, "UTF-8"),
        ("30 02 00 05", Reason.MALFORMED_PACKET, "middle of a field"),
        ("80 06 00 01 00 01 61 00", Reason.MALFORMED_PACKET, "reserved"),
        ("82 02 00 01", Reason.PROTOCOL_ERROR, "no topic filter"),
        ("82 07 00 01 00 02 61 23 00", Reason.TOPIC_FILTER_INVALID, "wrong place"),
        ("82 06 00 01 00 01 61 03", Reason.PROTOCOL_ERROR, "options"),
        ("82 0b 00 01 00 06 24 73 68 61 72 65 03", Reason.PROTOCOL_ERROR, "options"),
        ("c0 01 00", Reason.MALFORMED_PACKET, "follow the end"),
        ("10 0c 00 04 4d 51 54 54 04 03 00 00 00 00", Reason.MALFORMED_PACKET, "reserved"),
        ("10 0c 00 04 4d 51 54 54 04 08 00 00 00 00", Reason.MALFORMED_PACKET, "no will"),
        ("10 0c 00 04 4d 51 54 54 03 02 00 00 00 00", Reason.UNSUPPORTED_PROTOCOL_VERSION, "level 3"),
        ("10 0e 00 06 4d 51 49 73 64 70 03 02 00 00 00 00", Reason.UNSUPPORTED_PROTOCOL_VERSION, "MQIsdp"),
        ("f0 00", Reason.MALFORMED_PACKET, "AUTH"),
    ],
)
def test_a_broken_packet_is_refused_with_a_reason(data: str, reason: Reason, text: str) -> None:
    with pytest.raises(PacketError, match=text) as caught:
        decoded(bytes.fromhex(data), Version.V3_1_1)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("30 06 00 01 61 02 01 02", "not 0 or 1"),
        ("30 08 00 01 61 04 01 00 01 00", "twice"),
        ("30 05 00 01 61 01 7f", "no property"),
        ("30 09 00 01 61 05 11 00 00 00 01", "does not belong"),
        ("30 07 00 01 61 03 23 00 00", "alias 0"),
        ("30 03 00 00 00", "neither a topic nor"),
        ("82 0c 00 01 04 0b 01 0b 02 00 01 61 00", "twice"),
        ("82 08 00 01 02 0b 00 00 01 61 00", "is 0"),
    ],
)
def test_broken_properties_are_refused(data: str, text: str) -> None:
    frame = bytes.fromhex(data)
    with pytest.raises(PacketError, match=text):
        decode(frame[0], frame[2:], Version.V5)


def test_a_packet_above_the_limit_is_refused_before_its_body_arrives() -> None:
    with pytest.raises(PacketError, match="larger than the 1000 allowed") as caught:
        next_frame(bytes.fromhex("30 ff ff 7f"), 0, 1000)
    assert caught.value.reason is Reason.PACKET_TOO_LARGE


def test_a_length_of_five_bytes_is_refused() -> None:
    with pytest.raises(PacketError, match="more than four bytes"):
        next_frame(bytes.fromhex("30 ff ff ff ff 01"), 0, MAX)


def test_a_refused_connection_in_version_3_1_1_gets_its_own_return_code() -> None:
    refused = p.Connack(Reason.BAD_USER_NAME_OR_PASSWORD)
    assert encode(refused, Version.V3_1_1) == bytes.fromhex("20 02 00 04")
    assert encode(p.Connack(Reason.QUOTA_EXCEEDED), Version.V3_1_1) == bytes.fromhex("20 02 00 03")
