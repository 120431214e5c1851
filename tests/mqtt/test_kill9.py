"""QoS 2 through repeated kill -9 of the server: every message is in the log once, and arrives once."""

import contextlib
import random
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.properties import Properties
from millrace.testing import Broker, free_port

from .raw_client import RawClient
from .serving import ServerProcess

KEPT = Properties(session_expiry_interval=3600)
DEADLINE_SECONDS = 240


def connect(port: int, client_id: str) -> RawClient:
    """Connect to the session, as soon as the server is there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return RawClient(port, client_id, clean_start=False, properties=KEPT)
        except (OSError, AssertionError):
            assert time.monotonic() < deadline, "the server did not come back"
            time.sleep(0.05)


class Publisher(threading.Thread):
    """Publishes numbers with QoS 2, one after the other, and goes on where it was after each failure."""

    def __init__(self, port: int, topic: str, count: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._topic = topic
        self._count = count
        self.done = 0
        self._is_received = False

    def run(self) -> None:
        while self.done < self._count:
            with contextlib.suppress(OSError, AssertionError), connect(self._port, "publisher") as client:
                self._publish(client)

    def _publish(self, client: RawClient) -> None:
        is_duplicate = True
        while self.done < self._count:
            packet_id = self.done % 60_000 + 1
            if not self._is_received:
                payload = b"%d" % self.done
                client.send(p.Publish(self._topic, payload, 2, duplicate=is_duplicate, packet_id=packet_id))
                assert not client.expect(p.Pubrec).reason.is_failure
                self._is_received = True
            client.send(p.Pubrel(packet_id))
            client.expect(p.Pubcomp)
            self._is_received = is_duplicate = False
            self.done += 1


class Subscriber(threading.Thread):
    """Takes messages of QoS 2 as the standard tells clients to."""

    def __init__(self, port: int, topic: str, count: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._topic = topic
        self._count = count
        self._unreleased: set[int] = set()
        self.numbers: list[int] = []

    def run(self) -> None:
        while len(self.numbers) < self._count:
            with contextlib.suppress(OSError, AssertionError), connect(self._port, "subscriber") as client:
                while len(self.numbers) < self._count or self._unreleased:
                    self._handle(client, client.receive())

    def _handle(self, client: RawClient, packet: p.Packet | None) -> None:
        match packet:
            case p.Publish():
                if packet.packet_id not in self._unreleased:
                    self._unreleased.add(packet.packet_id)
                    self.numbers.append(int(packet.payload))
                client.send(p.Pubrec(packet.packet_id))
            case p.Pubrel():
                self._unreleased.discard(packet.packet_id)
                client.send(p.Pubcomp(packet.packet_id))
            case None:
                raise ConnectionError("the server is gone")


def in_the_log(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("mqtt", 0, 0)])
    found = []
    while True:
        record = consumer.poll(30)
        assert record is not None
        if record.error() is not None:
            assert record.error().code() == KafkaError._PARTITION_EOF
            break
        if record.key() == topic.encode():
            found.append(int(record.value()))
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("seed", "kills", "count"),
    [
        pytest.param(1, 2, 300, id="twice"),
        *(pytest.param(seed, 8, 3000, marks=pytest.mark.proof) for seed in range(2, 5)),
    ],
)
def test_qos_2_is_exactly_once_through_kill_9(broker: Broker, seed: int, kills: int, count: int) -> None:
    chance = random.Random(seed)
    topic, port = f"seed/{seed}", free_port()
    name = f"kill9-{seed}"
    server = ServerProcess(broker.bootstrap, "--name", name, port=port)
    try:
        with connect(port, "subscriber") as client:
            client.subscribe(topic, qos=2)
        publisher, subscriber = Publisher(port, topic, count), Subscriber(port, topic, count)
        publisher.start()
        subscriber.start()
        for number in range(kills):
            # Somewhere between two messages of this part.
            wanted = (number + chance.random()) * count / kills
            deadline = time.monotonic() + DEADLINE_SECONDS
            while publisher.done < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            server.kill9()
            server = ServerProcess(broker.bootstrap, "--name", name, port=port)
        publisher.join(DEADLINE_SECONDS)
        subscriber.join(DEADLINE_SECONDS)
        expected = list(range(count))
        assert in_the_log(broker, topic) == expected
        assert subscriber.numbers == expected
    finally:
        server.kill9()
