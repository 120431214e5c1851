"""kafka-python through restarts, recreated topics and lost responses: it recovers by itself."""

import time
from typing import Any

from millrace.testing import Broker, drop_answer

from .clients import SECONDS, Clients

# A restarted broker is ready at once: clients need not wait long before they retry.
EAGER: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "retry_backoff_ms": 10,
    "metadata_max_age_ms": 500,
}


def test_clients_continue_after_a_restart(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = own_clients.producer(**EAGER)
    producer.send(topic, b"before").get(SECONDS)
    consumer = own_clients.consumer(topic, fetch_max_wait_ms=50, **EAGER)
    assert own_clients.read(consumer, 1)[0].value == b"before"
    own_broker.restart()
    assert producer.send(topic, b"after a restart").get(SECONDS).offset == 1
    own_broker.kill9()
    own_broker.start()
    assert producer.send(topic, b"after a crash").get(SECONDS).offset == 2
    assert [record.value for record in own_clients.read(consumer, 2)] == [
        b"after a restart",
        b"after a crash",
    ]


def test_a_lost_answer_makes_no_duplicate(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = own_clients.producer(enable_idempotence=True, **EAGER)
    producer.send(topic, b"0").get(SECONDS)
    own_broker.on("Produce", drop_answer(times=1))
    assert producer.send(topic, b"1").get(SECONDS).offset == 1
    assert producer.send(topic, b"2").get(SECONDS).offset == 2
    assert own_broker.broker.partitions.leader(topic, 0).high_watermark == 3


def test_a_topic_recreated_under_a_producer_and_a_consumer(topic: str) -> None:
    # Otherwise a request between the deletion and the creation would create the topic.
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        clients = Clients(broker)
        admin = clients.admin()
        admin.create_topics([topic])
        producer = clients.producer(enable_idempotence=False, **EAGER)
        consumer = clients.consumer(topic, auto_offset_reset="earliest", fetch_max_wait_ms=50, **EAGER)
        for number in range(5):
            producer.send(topic, b"old %d" % number).get(SECONDS)
        assert len(clients.read(consumer, 5)) == 5
        admin.delete_topics([topic])
        admin.create_topics([topic])
        assert producer.send(topic, b"new").get(SECONDS).offset == 0
        # The consumer continues at the end of the new topic: produce until it finds a record.
        deadline = time.monotonic() + SECONDS
        while not consumer.poll(timeout_ms=100):
            assert time.monotonic() < deadline
            producer.send(topic, b"newer").get(SECONDS)
        clients.close()
