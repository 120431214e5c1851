"""Messages between clients, packet by packet."""

import pytest

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.properties import Properties
from millrace.mqtt.packets.reasons import Reason

from .raw_client import RawClient
from .serving import RunningServer


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber(server: RunningServer, name: str, version: Version, qos: int) -> None:
    with (
        RawClient(server.port, f"{name}-in", version=version) as subscriber,
        RawClient(server.port, f"{name}-out", version=version) as publisher,
    ):
        assert subscriber.subscribe(f"{name}/+", qos=2) == [Reason.GRANTED_QOS_2]
        publisher.publish(f"{name}/a", b"hello", qos)
        message = subscriber.take()
        assert (message.topic, message.payload, message.qos) == (f"{name}/a", b"hello", qos)
        assert not message.retain
        assert not message.duplicate


@pytest.mark.parametrize(("granted", "expected"), [(0, 0), (1, 1), (2, 2)])
def test_the_qos_of_the_subscription_is_the_upper_bound(
    server: RunningServer, name: str, granted: int, expected: int
) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(name, qos=granted)
        client.send(p.Publish(name, b"x", 2, packet_id=1))
        client.expect(p.Pubrec)
        assert client.take(acknowledge=False).qos == expected


def test_messages_of_a_topic_keep_their_order(server: RunningServer, name: str) -> None:
    with (
        RawClient(server.port, f"{name}-in") as subscriber,
        RawClient(server.port, f"{name}-out") as publisher,
    ):
        subscriber.subscribe(name)
        publisher.send(*(p.Publish(name, b"%d" % i, 1, packet_id=i + 1) for i in range(100)))
        assert [publisher.expect(p.Puback).packet_id for _ in range(100)] == list(range(1, 101))
        assert [int(subscriber.take().payload) for _ in range(100)] == list(range(100))


def test_overlapping_subscriptions_give_one_copy_with_both_identifiers(
    server: RunningServer, name: str
) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(f"{name}/#", qos=0, properties=Properties(subscription_identifiers=(7,)))
        client.subscribe(f"{name}/a", qos=1, properties=Properties(subscription_identifiers=(8,)))
        client.send(p.Publish(f"{name}/a", b"", 0), p.Publish(f"{name}/b", b"", 0))
        assert sorted(client.take().properties.subscription_identifiers) == [7, 8]
        assert client.take().properties.subscription_identifiers == (7,)


def test_no_local_leaves_out_the_clients_own_messages(server: RunningServer, name: str) -> None:
    with RawClient(server.port, f"{name}-1") as client, RawClient(server.port, f"{name}-2") as other:
        client.subscribe(name, no_local=True)
        client.publish(name, b"mine")
        other.publish(name, b"theirs")
        assert client.take().payload == b"theirs"


def test_properties_travel_with_the_message(server: RunningServer, name: str) -> None:
    properties = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="reply/here",
        correlation_data=b"\0\xff",
        user_properties=(("unit", "celsius"), ("unit", "kelvin"), ("mqtt.qos", "2")),
    )
    with RawClient(server.port, name) as client:
        client.subscribe(name)
        client.publish(name, b"20", 0, properties=properties)
        assert client.take().properties == properties


def test_an_expiry_interval_arrives_as_the_time_that_is_left(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(name)
        client.publish(name, b"x", 0, properties=Properties(message_expiry_interval=1000))
        left = client.take().properties.message_expiry_interval
        assert left is not None
        assert 900 < left <= 1000


def test_a_message_that_has_expired_is_not_delivered(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(name)
        client.publish(name, b"late", 0, properties=Properties(message_expiry_interval=0))
        client.publish(name, b"fresh", 0)
        assert client.take().payload == b"fresh"


def test_an_unsubscribed_topic_is_silent(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(f"{name}/a", f"{name}/b")
        client.send(p.Unsubscribe(2, [f"{name}/a", f"{name}/never"]))
        reasons = client.expect(p.Unsuback).reasons
        assert reasons == [Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED]
        client.send(p.Publish(f"{name}/a", b"", 0), p.Publish(f"{name}/b", b"", 0))
        assert client.take().topic == f"{name}/b"


def test_the_receive_maximum_of_a_client_bounds_unacknowledged_messages(
    server: RunningServer, name: str
) -> None:
    with RawClient(server.port, name, properties=Properties(receive_maximum=2)) as client:
        client.subscribe(name)
        client.send(*(p.Publish(name, b"%d" % i, 1, packet_id=i + 1) for i in range(4)))
        for _ in range(4):
            client.expect(p.Puback)
        messages = [client.take(acknowledge=False) for _ in range(2)]
        assert [message.payload for message in messages] == [b"0", b"1"]
        client.ping()
        client.send(p.Puback(messages[1].packet_id))
        assert client.take().payload == b"2"


def test_a_message_above_the_clients_packet_size_is_left_out(server: RunningServer, name: str) -> None:
    with (
        RawClient(server.port, f"{name}-in", properties=Properties(maximum_packet_size=100)) as subscriber,
        RawClient(server.port, f"{name}-out") as publisher,
    ):
        subscriber.subscribe(name)
        publisher.publish(name, b"x" * 200)
        publisher.publish(name, b"small")
        assert subscriber.take().payload == b"small"


def test_a_topic_alias_stands_for_its_topic(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(name)
        alias = Properties(topic_alias=3)
        client.publish(name, b"1", 0, properties=alias)
        client.publish("", b"2", 0, properties=alias)
        assert [client.take().payload for _ in range(2)] == [b"1", b"2"]


def test_a_repeated_qos_2_message_is_written_once(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(name)
        client.send(p.Publish(name, b"once", 2, packet_id=5))
        client.expect(p.Pubrec)
        client.send(p.Publish(name, b"once", 2, duplicate=True, packet_id=5))
        client.expect(p.Pubrec)
        client.send(p.Pubrel(5))
        client.expect(p.Pubcomp)
        client.publish(name, b"end", 0)
        assert [client.take().payload for _ in range(2)] == [b"once", b"end"]


def test_shared_subscriptions_divide_the_messages(server: RunningServer, name: str) -> None:
    with (
        RawClient(server.port, f"{name}-1") as first,
        RawClient(server.port, f"{name}-2") as second,
        RawClient(server.port, f"{name}-3") as alone,
    ):
        for member in (first, second):
            assert member.subscribe(f"$share/workers/{name}/#") == [Reason.GRANTED_QOS_1]
        alone.subscribe(f"{name}/#")
        for number in range(10):
            alone.send(p.Publish(f"{name}/a", b"%d" % number, 0))
        assert [int(alone.take().payload) for _ in range(10)] == list(range(10))
        first_half = [int(first.take().payload) for _ in range(5)]
        second_half = [int(second.take().payload) for _ in range(5)]
        assert sorted(first_half + second_half) == list(range(10))


def test_unacknowledged_messages_of_a_lost_member_go_to_another(server: RunningServer, name: str) -> None:
    with RawClient(server.port, f"{name}-2") as second:
        first = RawClient(server.port, f"{name}-1")
        first.subscribe(f"$share/g/{name}")
        second.publish(name, b"work")
        assert first.take(acknowledge=False).payload == b"work"
        second.subscribe(f"$share/g/{name}")
        first.close()
        assert second.take().payload == b"work"
