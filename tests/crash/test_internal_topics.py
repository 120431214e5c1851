"""An unreadable partition of an internal topic affects only its own groups or transactional ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.coordinator.runtime import positive_hash
from millrace.testing import Broker

TOPIC = "orders"
PARTITIONS = 5
LOST = 3
PATIENCE_SECONDS = 20
# A client without a coordinator retries for this long.
SHORT_SECONDS = 1.0
GROUPS = {f"group {number}": 100 + number for number in range(30)}
IDS = [f"id {number}" for number in range(15)]


def is_lost(key: str) -> bool:
    return positive_hash(key) % PARTITIONS == LOST


@pytest.fixture
def broker() -> Iterator[Broker]:
    sizes = {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "transaction.state.log.num.partitions": str(PARTITIONS),
    }
    with Broker(sizes) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_SECONDS)
        yield broker


@contextmanager
def unreadable(broker: Broker, topic: str) -> Iterator[None]:
    """Restart the broker with one partition of a topic unreadable, and repair it afterwards."""
    checkpoint = broker.data_dir / f"{topic}-{LOST}" / "leader-epoch-checkpoint"
    broker.stop()
    content = checkpoint.read_bytes()
    checkpoint.unlink()
    # A directory cannot be read as a file, not even by root.
    checkpoint.mkdir()
    broker.start()
    yield
    broker.stop()
    checkpoint.rmdir()
    checkpoint.write_bytes(content)
    broker.start()


@contextmanager
def consumer(broker: Broker, group: str) -> Iterator[Consumer]:
    opened = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2})
    try:
        yield opened
    finally:
        opened.close()


def commit(broker: Broker, group: str, offset: int) -> None:
    with consumer(broker, group) as member:
        member.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


def committed(broker: Broker, group: str, seconds: float = PATIENCE_SECONDS) -> int:
    with consumer(broker, group) as member:
        (found,) = member.committed([TopicPartition(TOPIC, 0)], timeout=seconds)
        return int(found.offset)


def test_groups_of_the_other_partitions_keep_their_offsets(broker: Broker) -> None:
    for group, offset in GROUPS.items():
        commit(broker, group, offset)
    with unreadable(broker, "__consumer_offsets"):
        for group, offset in GROUPS.items():
            if not is_lost(group):
                assert committed(broker, group) == offset
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        listed = admin.list_consumer_groups().result(PATIENCE_SECONDS)
        assert not listed.errors
        assert {group.group_id for group in listed.valid} == {name for name in GROUPS if not is_lost(name)}
        commit(broker, "group 0", 500)
        lost = next(filter(is_lost, GROUPS))
        with pytest.raises(KafkaException) as refused:
            committed(broker, lost, SHORT_SECONDS)
        assert refused.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._WAIT_COORD)
    assert not is_lost("group 0")
    assert {group: committed(broker, group) for group in GROUPS} == GROUPS | {"group 0": 500}


def transactional(broker: Broker, transactional_id: str) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 2}
    )


def initialized(broker: Broker, transactional_id: str) -> Producer:
    producer = transactional(broker, transactional_id)
    producer.init_transactions(PATIENCE_SECONDS)
    return producer


def write(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, b"value")
    producer.commit_transaction(PATIENCE_SECONDS)


def test_transactional_ids_of_the_other_partitions_keep_fencing(broker: Broker) -> None:
    before = {name: initialized(broker, name) for name in IDS}
    for producer in before.values():
        write(producer)
    kept = [name for name in IDS if not is_lost(name)]
    (lost, *_) = filter(is_lost, IDS)
    with unreadable(broker, "__transaction_state"):
        write(before[kept[0]])
        successor = initialized(broker, kept[1])
        assert_fenced(before[kept[1]])
        write(successor)
        waiting = transactional(broker, lost)
        with pytest.raises(KafkaException) as refused:
            waiting.init_transactions(SHORT_SECONDS)
        assert refused.value.args[0].retriable()
    waiting.init_transactions(PATIENCE_SECONDS)
    assert_fenced(before[lost])
    write(waiting)


def assert_fenced(producer: Producer) -> None:
    with pytest.raises(KafkaException) as refused:
        write(producer)
    assert refused.value.args[0].code() == KafkaError._FENCED
