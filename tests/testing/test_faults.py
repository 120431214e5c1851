"""Every fault of the test broker, seen by a real client."""

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from millrace.api import HANDLERS
from millrace.errors import Error
from millrace.testing import Broker, delay, drop, drop_answer, fail
from millrace.testing.faults import api_name
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.produce import ProduceRequest
from millrace.wire.schema import Array, Nested, String

TOPIC = "orders"
SECONDS = 30.0
EAGER = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "log_level": 2}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        admin = new_admin(broker)
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(SECONDS)
        yield broker


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    producer = new_producer(broker)
    yield producer
    producer.purge()


def new_admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap} | EAGER)


def new_producer(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0} | EAGER | settings)


def deliver(producer: Producer, value: bytes) -> KafkaError | None:
    """Produce one record; returns the error, if any."""
    outcome: list[KafkaError | None] = []
    producer.produce(TOPIC, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(SECONDS) == 0
    return outcome[0]


def end_offset(broker: Broker) -> int:
    return broker.broker.partitions.leader(TOPIC, 0).high_watermark


def test_a_dropped_request_has_done_nothing(broker: Broker, producer: Producer) -> None:
    broker.on("Produce", drop(times=2))
    assert deliver(producer, b"coffee") is None
    assert end_offset(broker) == 1


def test_a_dropped_answer_is_written_again_by_a_plain_producer(broker: Broker, producer: Producer) -> None:
    broker.on("Produce", drop_answer(times=1))
    assert deliver(producer, b"coffee") is None
    assert end_offset(broker) == 2


def test_a_dropped_answer_is_not_written_again_by_an_idempotent_producer(broker: Broker) -> None:
    producer = new_producer(broker, **{"enable.idempotence": True})
    broker.on("Produce", drop_answer(times=1))
    assert deliver(producer, b"coffee") is None
    assert end_offset(broker) == 1


def test_a_request_to_a_slow_api_is_handled_although_its_answer_is_dropped(broker: Broker) -> None:
    admin = new_admin(broker)
    broker.on("DeleteTopics", drop_answer(times=1))
    with pytest.raises(KafkaException):
        admin.delete_topics([TOPIC], request_timeout=SECONDS)[TOPIC].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while TOPIC in broker.broker.node.metadata.image.topics:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_delayed_answer_comes_late(broker: Broker, producer: Producer) -> None:
    assert deliver(producer, b"coffee") is None
    broker.on("Produce", delay(0.3))
    sent = time.monotonic()
    assert deliver(producer, b"tea") is None
    assert time.monotonic() - sent >= 0.3


def test_a_delayed_fetch_and_a_delayed_deletion_come_late(broker: Broker, producer: Producer) -> None:
    deliver(producer, b"coffee")
    broker.on("Fetch", delay(0.2))
    broker.on("DeleteTopics", delay(0.2))
    started = time.monotonic()
    assert read_one(broker) == b"coffee"
    assert time.monotonic() - started >= 0.2
    admin = new_admin(broker)
    started = time.monotonic()
    admin.delete_topics([TOPIC])[TOPIC].result(SECONDS)
    assert time.monotonic() - started >= 0.2


def read_one(broker: Broker) -> bytes | None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.error.backoff.ms": 10}
    consumer = Consumer(settings | EAGER | {"enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        return bytes(message.value())
    finally:
        consumer.close()


def test_a_temporary_failure_is_retried_by_the_client(broker: Broker, producer: Producer) -> None:
    broker.on("Produce", fail(Error.NOT_LEADER_OR_FOLLOWER, times=2))
    assert deliver(producer, b"coffee") is None
    broker.on("Fetch", fail(Error.NOT_LEADER_OR_FOLLOWER, times=2))
    assert read_one(broker) == b"coffee"


def test_a_permanent_failure_reaches_the_user(broker: Broker, producer: Producer) -> None:
    broker.on("Produce", fail(Error.TOPIC_AUTHORIZATION_FAILED))
    error = deliver(producer, b"coffee")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker.on("Fetch", fail(Error.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException) as failure:
        read_one(broker)
    assert failure.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


ADMIN_CALLS: dict[str, Callable[[AdminClient], Any]] = {
    "CreateTopics": lambda admin: admin.create_topics([NewTopic("new", 1)])["new"].result(SECONDS),
    "DeleteTopics": lambda admin: admin.delete_topics([TOPIC])[TOPIC].result(SECONDS),
    "DescribeConfigs": lambda admin: first(
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)])
    ),
    "ListOffsets": lambda admin: first(admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.earliest()})),
    "DeleteRecords": lambda admin: first(admin.delete_records([TopicPartition(TOPIC, 0, 0)])),
}


def first(futures: dict[Any, Any]) -> Any:
    return next(iter(futures.values())).result(SECONDS)


@pytest.mark.parametrize("api", ADMIN_CALLS)
def test_an_admin_call_fails_with_the_error(broker: Broker, api: str) -> None:
    admin = new_admin(broker)
    broker.on(api, fail(Error.POLICY_VIOLATION, "no"))
    with pytest.raises(KafkaException) as failure:
        ADMIN_CALLS[api](admin)
    assert failure.value.args[0].code() == KafkaError.POLICY_VIOLATION
    broker.clear_faults()
    ADMIN_CALLS[api](admin)


@pytest.fixture(scope="module")
def lasting_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("version", ["lowest", "highest"])
@pytest.mark.parametrize("handler", HANDLERS, ids=api_name)
def test_every_api_can_fail(lasting_broker: Broker, handler: Any, version: str) -> None:
    if (api_name(handler), version) == ("DescribeLogDirs", "lowest"):
        pytest.skip("has room for errors of directories only, and the request names none")
    lasting_broker.clear_faults()
    lasting_broker.on(api_name(handler), fail(Error.POLICY_VIOLATION, "no"))
    request = asking_for_one_of_each(handler.request)
    response = exchange(lasting_broker, request, getattr(handler, version))
    assert f"error_code={Error.POLICY_VIOLATION.value}" in repr(response)


def asking_for_one_of_each(struct: type[Any]) -> Any:
    """A request, or a part of one, with one item in each of its lists."""
    request = struct()
    for name, field in struct.wire_fields.items():
        if isinstance(field.type, Array):
            element = field.type.element
            simple = "x" if isinstance(element, String) else 0
            item = asking_for_one_of_each(element.struct) if isinstance(element, Nested) else simple
            setattr(request, name, [item])
    return request


def exchange(broker: Broker, request: Any, version: int) -> Any:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS) as connection:
        if api_name_of(request) == "Produce":
            request.acks = 1
        connection.sendall(encode_request(request, version, 1, "test"))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        _, response = read_response(request.response, version, stream.read(size))
        return response


def api_name_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def test_a_fault_ends_after_its_number_of_times(broker: Broker) -> None:
    admin = new_admin(broker)
    broker.on("CreateTopics", fail(Error.POLICY_VIOLATION, times=1))
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("new", 1)])["new"].result(SECONDS)
    admin.create_topics([NewTopic("new", 1)])["new"].result(SECONDS)


def test_faults_outlast_a_restart(broker: Broker) -> None:
    broker.on("CreateTopics", fail(Error.POLICY_VIOLATION))
    broker.restart()
    admin = new_admin(broker)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("new", 1)])["new"].result(SECONDS)


def test_a_misspelt_api_is_an_error_that_names_the_right_ones(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"'Produced'.*Produce"):
        broker.on("Produced", drop())


def test_a_failed_write_costs_nothing_but_time(broker: Broker, producer: Producer) -> None:
    assert deliver(producer, b"coffee") is None
    broker.disk.fail_next_write()
    assert deliver(producer, b"tea") is None
    assert end_offset(broker) == 2
    broker.kill9()
    broker.start()
    assert end_offset(broker) == 2


def test_a_full_disk_is_reported_and_writing_continues_when_there_is_room(
    broker: Broker, producer: Producer
) -> None:
    broker.disk.fill(room=20)
    impatient = new_producer(broker, **{"message.timeout.ms": 500})
    error = deliver(impatient, b"coffee")
    assert error is not None
    assert end_offset(broker) == 0
    broker.disk.free()
    assert deliver(producer, b"tea") is None
    assert read_one(broker) == b"tea"


def test_a_failed_fsync_is_not_acknowledged() -> None:
    with Broker({"log.flush.interval.messages": "1"}) as broker:
        assert deliver(new_producer(broker), b"coffee") is None
        fsyncs = broker.disk.fsyncs
        assert fsyncs > 0
        broker.disk.fail_next_fsync(errno.EIO)
        impatient = new_producer(broker, **{"message.timeout.ms": 1000, "retries": 0})
        assert deliver(impatient, b"tea") is not None
        assert broker.disk.fsyncs > fsyncs


def test_a_fault_stays_while_others_come_and_go(broker: Broker) -> None:
    broker.on("Produce", drop())
    seen: list[bool] = []

    class Watched(dict[int, Any]):
        """The broker's faults, checked after each change."""

        def clear(self) -> None:
            super().clear()
            seen.append(broker_has_it())

        def __delitem__(self, key: int) -> None:
            super().__delitem__(key)
            seen.append(broker_has_it())

    def broker_has_it() -> bool:
        return ProduceRequest.api_key in broker.broker.interceptors

    broker.broker.interceptors = Watched(broker.broker.interceptors)
    broker.on("Fetch", drop(times=1))
    assert broker_has_it()
    assert all(seen)
    broker.clear_faults()
    assert not broker.broker.interceptors
