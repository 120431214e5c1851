"""The log fails and comes back while clients stay connected."""

from millrace.mqtt.packets import packets as p
from millrace.mqtt.settings import Settings
from millrace.testing import Broker

from .raw_client import RawClient
from .serving import running


def test_messages_continue_after_the_log_was_killed_and_started_again() -> None:
    with (
        Broker() as broker,
        running(Settings(bootstrap=broker.bootstrap)) as server,
        RawClient(server.port, "subscriber") as subscriber,
        RawClient(server.port, "publisher") as publisher,
    ):
        subscriber.subscribe("a/#", qos=2)
        for qos in (1, 2):
            publisher.publish(f"a/{qos}", b"before", qos)
            assert subscriber.take().payload == b"before"
        broker.kill9()
        publisher.send(*(p.Publish("a/1", b"%d" % number, 1, packet_id=number + 1) for number in range(10)))
        publisher.ping()
        broker.start()
        assert [publisher.expect(p.Puback).packet_id for _ in range(10)] == list(range(1, 11))
        numbers = [int(subscriber.take().payload) for _ in range(10)]
        assert numbers == list(range(10))
        for qos in (1, 2):
            publisher.publish(f"a/{qos}", b"after", qos)
            assert subscriber.take().payload == b"after"
