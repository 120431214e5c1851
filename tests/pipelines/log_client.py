"""Creates, fills and reads topics with an ordinary client."""

from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap: str, *topics: str, partitions: int = 1) -> None:
    """Create topics that keep even old records, and wait until they exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, partitions, config={"retention.ms": "-1"}) for topic in topics]
    for created in admin.create_topics(new).values():
        created.result(10)


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
    """Read the first records of a partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        messages: list[Message] = []
        while len(messages) < count:
            taken = consumer.consume(count - len(messages), timeout=10)
            assert taken, f"{topic} has only {len(messages)} of {count} records"
            messages += taken
        return messages
    finally:
        consumer.close()
