"""The broker for tests, as its users use it."""

import os
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.testing import Broker, BrokerProcess, ManualClock, free_port

SECONDS = 30.0


def produce(broker: Broker | BrokerProcess, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(SECONDS) == 0


def read(broker: Broker | BrokerProcess, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "log_level": 2}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    messages = consumer.consume(count, SECONDS)
    consumer.close()
    return [message.value() for message in messages]


def test_a_broker_is_ready_in_a_moment() -> None:
    fastest = SECONDS
    for _ in range(3):
        started = time.monotonic()
        with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port)):
            fastest = min(fastest, time.monotonic() - started)
    assert fastest < 3


def test_what_is_produced_can_be_read() -> None:
    with Broker() as broker:
        produce(broker, b"coffee", b"tea")
        assert read(broker, 2) == [b"coffee", b"tea"]


def test_properties_are_kafka_s() -> None:
    with Broker({"num.partitions": "3", "broker.id": "7"}) as broker:
        produce(broker, b"coffee")
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=SECONDS)
        assert len(metadata.topics["orders"].partitions) == 3
        assert list(metadata.brokers) == [7]


def test_its_data_directory_is_removed_with_it() -> None:
    with Broker() as broker:
        assert broker.data_dir.is_dir()
    assert not broker.data_dir.exists()


def test_a_given_data_directory_is_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, b"coffee")
    with Broker(data_dir=str(tmp_path)) as broker:
        assert read(broker, 1) == [b"coffee"]


def test_a_restart_keeps_address_and_data() -> None:
    with Broker() as broker:
        address = broker.bootstrap
        produce(broker, b"coffee")
        broker.restart()
        assert broker.bootstrap == address
        produce(broker, b"tea")
        assert read(broker, 2) == [b"coffee", b"tea"]


def test_a_killed_broker_recovers_what_was_acknowledged() -> None:
    with Broker() as broker:
        address = broker.bootstrap
        produce(broker, b"coffee")
        broker.kill9()
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port))
        broker.start()
        assert broker.bootstrap == address
        assert read(broker, 1) == [b"coffee"]


def test_stopping_twice_is_harmless() -> None:
    with Broker() as broker:
        broker.stop()
        broker.stop()
        broker.kill9()


def test_brokers_do_not_disturb_each_other() -> None:
    with Broker() as one, Broker() as other:
        produce(one, b"coffee")
        produce(other, b"tea")
        assert read(one, 1) == [b"coffee"]
        assert read(other, 1) == [b"tea"]


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        with pytest.raises(Exception, match=str(tmp_path)):
            Broker(data_dir=tmp_path).start()
        produce(first, b"coffee")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = Broker({"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        with pytest.raises(Exception, match=str(port)):
            broker.start()
    broker.start()
    broker.stop()


def test_the_test_controls_the_time() -> None:
    clock = ManualClock(int(time.time() * 1000))
    day_ms = 24 * 3600 * 1000
    soon = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "20"}
    with Broker(soon, clock=clock) as broker:
        produce(broker, b"coffee", b"tea")
        partition = broker.broker.partitions.leader("orders", 0)
        assert partition.log.log_start_offset == 0
        clock.advance(8 * day_ms)
        deadline = time.monotonic() + SECONDS
        while partition.log.log_start_offset < 2:
            assert time.monotonic() < deadline, "the records were not deleted"
            time.sleep(0.005)
        produce(broker, b"milk")
        assert partition.log.log_end_offset == 3


def test_a_free_port_can_be_bound_and_is_outside_the_range_of_outgoing_connections() -> None:
    for _ in range(20):
        port = free_port()
        with socket.create_server(("127.0.0.1", port)) as listening:
            assert free_port() != port
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.getsockname()[1] > port
            assert listening.getsockname()[1] == port


def test_a_process_survives_kill_9_by_starting_again() -> None:
    with BrokerProcess() as broker:
        first, address = broker.pid, broker.bootstrap
        produce(broker, b"coffee")
        broker.kill9()
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        broker.start()
        assert broker.pid != first
        assert broker.bootstrap == address
        produce(broker, b"tea")
        assert read(broker, 2) == [b"coffee", b"tea"]
        broker.restart()
        assert read(broker, 2) == [b"coffee", b"tea"]
        assert (broker.data_dir / "server.properties").exists()


def test_a_process_that_does_not_start_says_why(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        second = BrokerProcess(data_dir=tmp_path)
        with pytest.raises(RuntimeError, match=str(tmp_path)):
            second.start()
