"""Offsets are deleted with their topic: a group starts over with a new topic of the same name."""

from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

SECONDS = 30


def test_a_topic_takes_its_committed_offsets_along() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for name in ("orders", "kept"):
            admin.create_topics([NewTopic(name, 1)])[name].result(SECONDS)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(5):
            producer.produce("orders", b"v")
            producer.produce("kept", b"v")
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        committed = [TopicPartition("orders", 0, 4), TopicPartition("kept", 0, 3)]
        consumer.commit(offsets=committed, asynchronous=False)

        admin.delete_topics(["orders"])["orders"].result(SECONDS)
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(SECONDS)
        offsets = [partition.offset for partition in consumer.committed(committed, SECONDS)]
        assert offsets == [OFFSET_INVALID, 3]
        broker.restart()
        offsets = [partition.offset for partition in consumer.committed(committed, SECONDS)]
        assert offsets == [OFFSET_INVALID, 3]
        consumer.close()
