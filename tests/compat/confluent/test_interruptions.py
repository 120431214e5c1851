"""librdkafka through restarts, recreated topics and lost responses: it recovers by itself."""

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from millrace.testing import Broker, drop_answer

from ..conftest import CreateTopic
from .clients import Clients

# A restarted broker is ready at once: clients need not wait long before they retry.
EAGER = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 10}
EAGER_CONSUMER = EAGER | {"fetch_error_backoff_ms": 10, "fetch_wait_max_ms": 100}
NOT_THERE = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_clients_continue_after_a_restart(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = own_clients.producer(**EAGER)
    own_clients.deliver(producer, topic, b"before")
    consumer = own_clients.consumer(topic, **EAGER_CONSUMER)
    assert own_clients.read(consumer, 1)[0].value() == b"before"
    own_broker.restart()
    assert own_clients.deliver(producer, topic, b"after a restart").offset() == 1
    own_broker.kill9()
    own_broker.start()
    assert own_clients.deliver(producer, topic, b"after a crash").offset() == 2
    assert [message.value() for message in own_clients.read(consumer, 2)] == [
        b"after a restart",
        b"after a crash",
    ]


def test_an_idempotent_producer_writes_everything_once_through_crashes(
    own_broker: Broker, own_clients: Clients, topic: str
) -> None:
    producer = own_clients.producer(enable_idempotence=True, linger_ms=1, **EAGER)
    sent = 0
    for _ in range(3):
        for _ in range(300):
            producer.produce(topic, b"%d" % sent)
            sent += 1
        producer.poll(0.005)
        own_broker.kill9()
        own_broker.start()
    assert producer.flush(30) == 0
    messages = own_clients.read(
        own_clients.consumer(topic),
        sent,
    )
    assert [int(message.value()) for message in messages] == list(range(sent))


def test_a_lost_answer_makes_no_duplicate(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = own_clients.producer(enable_idempotence=True, **EAGER)
    own_clients.deliver(producer, topic, b"0")
    own_broker.on("Produce", drop_answer(times=2))
    assert own_clients.deliver(producer, topic, b"1").offset() == 1
    assert own_clients.deliver(producer, topic, b"2").offset() == 2
    messages = own_clients.read(
        own_clients.consumer(topic),
        3,
    )
    assert [(message.offset(), message.value()) for message in messages] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert own_broker.broker.partitions.leader(topic, 0).high_watermark == 3


def test_a_topic_recreated_under_a_producer_and_a_consumer(topic: str) -> None:
    quick = EAGER | {"topic_metadata_refresh_interval_ms": 100, "topic_metadata_propagation_max_ms": 1}
    # Otherwise a request between the deletion and the creation would create the topic.
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        clients = Clients(broker)
        admin = clients.admin()
        admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
        producer = clients.producer(**quick)
        consumer = clients.consumer(topic, auto_offset_reset="earliest", **(quick | EAGER_CONSUMER))
        for number in range(5):
            clients.deliver(producer, topic, b"old %d" % number)
        # The consumer's position must lie behind the new log's end: only then does the consumer start over.
        _read_up_to(consumer, b"old 4")
        first_id = broker.broker.node.metadata.image.topics[topic].topic_id
        admin.delete_topics([topic])[topic].result(20)
        admin.create_topics([NewTopic(topic, 2)])[topic].result(20)
        assert broker.broker.node.metadata.image.topics[topic].topic_id != first_id
        _deliver_when_found(clients, producer, topic, b"new")
        _read_up_to(consumer, b"new")
        clients.close()


def _deliver_when_found(clients: Clients, producer: Producer, topic: str, value: bytes) -> None:
    """Between the deletion and the creation, a producer may get an error."""
    deadline = time.monotonic() + 30
    while True:
        try:
            clients.deliver(producer, topic, value, partition=0)
            return
        except KafkaException as error:
            assert error.args[0].code() in NOT_THERE
            assert time.monotonic() < deadline


def _read_up_to(consumer: Consumer, value: bytes) -> None:
    """Skip old records, and errors from between deletion and creation, up to the wanted record."""
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline, f"{value!r} did not come"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None and message.value() == value:
            return


def test_producers_on_many_threads_share_a_broker(clients: Clients, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=4)
    producers = [clients.producer(enable_idempotence=True) for _ in range(4)]

    def send(partition: int) -> None:
        for number in range(250):
            producers[partition].produce(topic, b"%d" % number, partition=partition)
        producers[partition].flush(30)

    threads = [threading.Thread(target=send, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    values: dict[int, list[int]] = {}
    for message in clients.read(clients.consumer(topic, partitions=(0, 1, 2, 3)), 1000):
        values.setdefault(message.partition(), []).append(int(message.value()))
    assert values == {partition: list(range(250)) for partition in range(4)}
