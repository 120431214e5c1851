"""The MQTT server in front of Apache Kafka: the same server, another log."""

from collections.abc import Iterator

import pytest

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.mqtt.packets.properties import Properties
from millrace.testing.apache_kafka import ApacheKafka

from .raw_client import RawClient
from .serving import ServerProcess

pytestmark = [pytest.mark.java, pytest.mark.proof]


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    try:
        java()
        apache_kafka_classpath()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    with ApacheKafka({"num.partitions": "3"}) as kafka:
        yield kafka


def test_sessions_over_apache_kafka_survive_kill_9(apache_kafka: ApacheKafka) -> None:
    kept = Properties(session_expiry_interval=3600)
    server = ServerProcess(apache_kafka.bootstrap, "--name", "apache")
    try:
        client = RawClient(server.port, "client", clean_start=False, properties=kept)
        client.subscribe("#", qos=2)
        with RawClient(server.port, "publisher") as publisher:
            for qos in (0, 1, 2):
                publisher.publish(f"a/{qos}", b"live", qos, retain=qos == 1)
        assert {client.take().topic for _ in range(3)} == {"a/0", "a/1", "a/2"}
        server.kill9()
        client.close()
        server = ServerProcess(apache_kafka.bootstrap, "--name", "apache")
        with RawClient(server.port, "publisher", clean_start=False, properties=kept) as publisher:
            publisher.publish("b/2", b"while away", 2)
            publisher.subscribe("a/+")
            assert publisher.take().topic == "a/1"
        with RawClient(server.port, "client", clean_start=False, properties=kept) as client:
            assert client.connack is not None
            assert client.connack.session_present
            found = client.take()
            while found.topic != "b/2":
                # QoS 1 of the last second may come again.
                assert (found.topic, found.payload) == ("a/1", b"live")
                found = client.take()
            client.ping()
    finally:
        server.kill9()
