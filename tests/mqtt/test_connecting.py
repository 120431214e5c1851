"""Connections: how they begin and end, and what closes them."""

import contextlib
import logging
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.properties import Properties
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.settings import Settings
from millrace.testing import Broker

from ..waiting import until
from .packet_strategies import packets
from .raw_client import RawClient
from .serving import HOST, RunningServer, running


def test_the_server_names_its_limits(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        assert client.connack is not None
        limits = client.connack.properties
        assert limits.receive_maximum == 100
        assert limits.maximum_packet_size == 1_000_000
        assert limits.topic_alias_maximum == 32
        assert limits.assigned_client_identifier is None
        assert not client.connack.session_present


def test_a_client_without_id_gets_one(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        client.send(p.Connect("", Version.V5))
        assigned = client.expect(p.Connack).properties.assigned_client_identifier
        assert assigned is not None
        assert assigned.startswith("millrace-")


def test_version_3_1_1_without_id_has_to_start_clean(server: RunningServer) -> None:
    with RawClient(server.port, version=Version.V3_1_1) as client:
        client.send(p.Connect("", Version.V3_1_1, clean_start=False))
        assert client.expect(p.Connack).reason is Reason.CLIENT_IDENTIFIER_NOT_VALID
        assert client.receive() is None


def test_a_second_connection_takes_the_session_over(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as first, RawClient(server.port, name) as second:
        assert first.expect(p.Disconnect).reason is Reason.SESSION_TAKEN_OVER
        assert first.receive() is None
        second.ping()


def test_packets_behind_connect_wait_until_it_is_accepted(server: RunningServer, name: str) -> None:
    with RawClient(server.port) as client:
        client.send(p.Connect(name), p.Subscribe(1, [p.Subscription(name)]), p.Publish(name, b"x"))
        client.expect(p.Connack)
        client.expect(p.Suback)
        assert client.take().payload == b"x"


def test_a_silent_client_is_closed_after_its_keep_alive(broker: Broker, name: str) -> None:
    with (
        running(Settings(bootstrap=broker.bootstrap, name=name, store_seconds=0.05)) as server,
        RawClient(server.port, f"{name}-1", keep_alive=1) as silent,
        RawClient(server.port, f"{name}-2", keep_alive=0) as patient,
    ):
        assert silent.expect(p.Disconnect).reason is Reason.KEEP_ALIVE_TIMEOUT
        assert silent.receive() is None
        patient.ping()


def test_a_connection_without_connect_is_closed(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, store_seconds=0.05, connect_seconds=0.1)
    with running(settings) as server, RawClient(server.port) as client:
        assert client.receive() is None


def test_the_server_may_shorten_the_keep_alive(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, max_keep_alive=60)
    with running(settings) as server, RawClient(server.port, name, keep_alive=600) as client:
        assert client.connack is not None
        assert client.connack.properties.server_keep_alive == 60


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        (b"\x36\x05\x00\x01a\x00\x01", Reason.MALFORMED_PACKET, "QoS 3"),
        (encode(p.Connect("again"), Version.V5), Reason.PROTOCOL_ERROR, "CONNECT is out of place"),
        (encode(p.Suback(1, []), Version.V5), Reason.PROTOCOL_ERROR, "SUBACK is out of place"),
        (b"\x30\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE, "larger than the 1000000 allowed"),
        (b"\x30\x06\x00\x00\x03\x23\x00\x09", Reason.TOPIC_ALIAS_INVALID, "alias 9 is not known"),
    ],
)
def test_a_bad_packet_closes_its_connection_alone_with_a_clear_log_line(
    server: RunningServer,
    name: str,
    caplog: pytest.LogCaptureFixture,
    data: bytes,
    reason: Reason,
    text: str,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "millrace.mqtt"),
        RawClient(server.port, f"{name}-1") as bystander,
        RawClient(server.port, name) as client,
    ):
        client.send_bytes(data)
        packet = client.receive()
        assert isinstance(packet, p.Disconnect)
        assert packet.reason is reason
        assert client.receive() is None
        bystander.ping()
        assert f"(client '{name}'): " in caplog.text
        assert text in caplog.text


def test_more_messages_than_the_receive_maximum_close_the_connection(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, receive_maximum=2)
    with running(settings) as server, RawClient(server.port, name) as client:
        client.send(*(p.Publish(name, b"", 2, packet_id=i) for i in (1, 2, 3)))
        packet = client.receive()
        while isinstance(packet, p.Pubrec):
            packet = client.receive()
        assert isinstance(packet, p.Disconnect)
        assert packet.reason is Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_an_unknown_protocol_is_refused(server: RunningServer) -> None:
    with socket.create_connection((HOST, server.port), 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""


@given(
    st.lists(
        st.one_of(packets(Version.V5).map(lambda packet: encode(packet, Version.V5)), st.binary(max_size=40)),
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_harm_the_server(server: RunningServer, several: list[bytes]) -> None:
    with RawClient(server.port, "fuzzer") as client:
        try:
            client.send_bytes(b"".join(several))
            client.finish_sending()
            while client.receive() is not None:
                pass
        except (OSError, AssertionError):
            pass
    with RawClient(server.port, "bystander") as bystander:
        bystander.ping()


def test_a_will_is_published_when_the_connection_breaks(server: RunningServer, name: str) -> None:
    will = p.Will(name, b"gone", 1, properties=Properties(user_properties=(("why", "unknown"),)))
    with RawClient(server.port, f"{name}-1") as watcher:
        watcher.subscribe(name)
        RawClient(server.port, f"{name}-2", will=will).close()
        message = watcher.take()
        assert message.payload == b"gone"
        assert message.properties.user_properties == (("why", "unknown"),)


def test_a_will_is_dropped_when_the_client_says_goodbye(server: RunningServer, name: str) -> None:
    will = p.Will(name, b"gone")
    with RawClient(server.port, f"{name}-1") as watcher:
        watcher.subscribe(name)
        RawClient(server.port, f"{name}-2", will=will).disconnect()
        RawClient(server.port, f"{name}-3", will=p.Will(name, b"wanted")).disconnect(
            Reason.DISCONNECT_WITH_WILL
        )
        assert watcher.take().payload == b"wanted"


def test_a_delayed_will_is_dropped_when_the_client_returns(server: RunningServer, name: str) -> None:
    will = p.Will(name, b"gone", properties=Properties(will_delay_interval=3600))
    kept = Properties(session_expiry_interval=7200)
    before = server.counters.wills_published
    RawClient(server.port, name, will=will, properties=kept).close()
    until(lambda: server.counters.connections == 0)
    with RawClient(server.port, name, clean_start=False, properties=kept) as client:
        assert client.connack is not None
        assert client.connack.session_present
        client.subscribe(name)
        client.disconnect()
    assert server.counters.wills_published == before


def test_a_delayed_will_is_due_when_its_session_ends(server: RunningServer, name: str) -> None:
    will = p.Will(name, b"gone", properties=Properties(will_delay_interval=3600))
    with RawClient(server.port, f"{name}-1") as watcher:
        watcher.subscribe(name)
        RawClient(server.port, name, will=will, properties=Properties(session_expiry_interval=1)).close()
        assert watcher.take().payload == b"gone"


def test_a_client_that_sends_connect_byte_by_byte_is_closed(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, store_seconds=0.05, connect_seconds=0.3)
    with running(settings) as server, RawClient(server.port) as client:
        client.send_bytes(encode(p.Connect(name), Version.V5)[:-1])
        assert client.receive() is None
        assert server.counters.keep_alive_timeouts == 1


def test_a_large_packet_is_accepted_only_after_connect(server: RunningServer, name: str) -> None:
    with RawClient(server.port) as stranger:
        stranger.send_bytes(b"\x10\xff\xff\x2f")
        assert stranger.receive() is None
    with RawClient(server.port, name) as client:
        assert client.publish(name, b"x" * 500_000) is Reason.SUCCESS


def test_too_many_and_too_long_subscriptions_are_refused(broker: Broker, name: str) -> None:
    settings = Settings(bootstrap=broker.bootstrap, name=name, subscriptions=2)
    with running(settings) as server, RawClient(server.port, name) as client:
        reasons = client.subscribe("a" * 5000, "a", "b", "c", "a")
        refused = [Reason.TOPIC_FILTER_INVALID, Reason.QUOTA_EXCEEDED]
        assert reasons == [
            refused[0],
            Reason.GRANTED_QOS_1,
            Reason.GRANTED_QOS_1,
            refused[1],
            Reason.GRANTED_QOS_1,
        ]


def test_wills_are_published_when_the_server_stops(broker: Broker, name: str) -> None:
    with running(Settings(bootstrap=broker.bootstrap, name=f"{name}-1")) as stopping:
        watcher = RawClient(
            stopping.port, f"{name}-w", clean_start=False, properties=Properties(session_expiry_interval=3600)
        )
        watcher.subscribe(name)
        lost = RawClient(stopping.port, f"{name}-c", will=p.Will(name, b"gone", 1))
    watcher.close()
    lost.close()
    with (
        running(Settings(bootstrap=broker.bootstrap, name=f"{name}-2")) as server,
        RawClient(
            server.port, f"{name}-w", clean_start=False, properties=Properties(session_expiry_interval=3600)
        ) as watcher,
    ):
        assert watcher.take().payload == b"gone"
