"""Retained messages."""

import pytest

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.properties import Properties

from .raw_client import RawClient
from .serving import RunningServer


def test_a_new_subscription_gets_the_last_retained_message(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.publish(f"{name}/a", b"old", retain=True)
        client.publish(f"{name}/a", b"new", retain=True)
        client.publish(f"{name}/b/c", b"other", 2, retain=True)
        client.subscribe(f"{name}/#")
        found = [client.take() for _ in range(2)]
        assert {(message.topic, message.payload, message.retain) for message in found} == {
            (f"{name}/a", b"new", True),
            (f"{name}/b/c", b"other", True),
        }
        client.ping()


def test_a_retained_message_without_payload_removes_it(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.publish(name, b"x", retain=True)
        client.publish(name, b"", retain=True)
        client.subscribe(name)
        client.ping()


def test_retain_as_published_keeps_the_flag_of_live_messages(server: RunningServer, name: str) -> None:
    with RawClient(server.port, f"{name}-1") as keeps, RawClient(server.port, f"{name}-2") as clears:
        keeps.subscribe(name, retain_as_published=True)
        clears.subscribe(name)
        clears.send(p.Publish(name, b"x", 0, retain=True))
        assert keeps.take().retain
        assert not clears.take().retain


@pytest.mark.parametrize(
    ("handling", "first", "again"), [(0, True, True), (1, True, False), (2, False, False)]
)
def test_retain_handling_says_when_retained_messages_are_sent(
    server: RunningServer, name: str, handling: int, first: bool, again: bool
) -> None:
    with RawClient(server.port, name) as client:
        client.publish(name, b"x", retain=True)
        for expected in (first, again):
            client.subscribe(name, retain_handling=handling)
            if expected:
                assert client.take().payload == b"x"
            client.ping()


def test_an_expired_retained_message_is_gone(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.publish(name, b"x", retain=True, properties=Properties(message_expiry_interval=0))
        client.subscribe(name)
        client.ping()


def test_an_unacknowledged_retained_message_is_sent_again(server: RunningServer, name: str) -> None:
    kept = Properties(session_expiry_interval=3600)
    with RawClient(server.port, f"{name}-out") as publisher:
        publisher.publish(name, b"x", retain=True)
    client = RawClient(server.port, name, properties=kept)
    client.subscribe(name)
    first = client.take(acknowledge=False)
    client.close()
    with RawClient(server.port, name, clean_start=False, properties=kept) as client:
        again = client.take()
        assert (again.payload, again.packet_id, again.duplicate) == (b"x", first.packet_id, True)
