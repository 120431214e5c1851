"""A data directory written by Apache Kafka, taken over with an open transaction."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.testing.apache_kafka import ApacheKafka

from ... import jvm
from .conftest import PROPERTIES
from .reading import SECONDS, Reading

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("java_and_jars")]

TOPIC = "shared"


def new_producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2}
    )
    producer.init_transactions(SECONDS)
    return producer


def transact(producer: Producer, value: bytes, end: Callable[..., object] | None) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value)
    producer.flush(SECONDS)
    if end is not None:
        end(SECONDS)


def test_transactions_continue_where_kafka_left_them(tmp_path: Path) -> None:
    single = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with ApacheKafka(PROPERTIES | single, directory=tmp_path, jvm_options=jvm.BROKER) as kafka:
        left = new_producer(kafka.bootstrap, "left open")
        transact(left, b"committed", left.commit_transaction)
        transact(left, b"aborted", left.abort_transaction)
        transact(left, b"open", None)
    with Broker(PROPERTIES, data_dir=kafka.data_directory) as broker:
        reading = Reading(broker.bootstrap)
        assert reading.committed(TOPIC) == [b"committed"]
        assert reading.is_open(TOPIC)
        other = new_producer(broker.bootstrap, "other")
        transact(other, b"other", other.commit_transaction)
        heir = new_producer(broker.bootstrap, "left open")
        transact(heir, b"heir", heir.commit_transaction)
        assert reading.committed(TOPIC) == [b"committed", b"other", b"heir"]
        assert not reading.is_open(TOPIC)
