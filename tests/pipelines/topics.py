"""Topics for tests of pipelines: made, filled and read with an ordinary client."""

from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Make a topic that keeps even old records, and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, partitions, config={"retention.ms": "-1"})]).values()
    made.result(10)


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | str | None],
    *,
    keys: Sequence[bytes | str | None] | None = None,
    partition: int = 0,
    headers: list[tuple[str, bytes]] | None = None,
    timestamps: Sequence[int] | None = None,
) -> None:
    """Append records to one partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            keys[number] if keys else None,
            partition,
            headers=headers or [],
            timestamp=timestamps[number] if timestamps else 0,
        )
    assert producer.flush(10) == 0


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[Message]:
    """The first records of a partition, as many as asked for."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found: list[Message] = []
        while len(found) < count:
            taken = consumer.consume(count - len(found), timeout=10)
            assert taken, f"{topic} has only {len(found)} of {count} records"
            found += taken
        return found
    finally:
        consumer.close()
