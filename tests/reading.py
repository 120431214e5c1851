"""Read whole topics, as a consumer of either isolation level sees them."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SECONDS = 60.0


def reader(bootstrap: str, isolation: str = COMMITTED, group: str = "reading") -> Consumer:
    """A consumer that commits nothing and reports the end of partitions."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def read_topic(bootstrap: str, topic: str, isolation: str = COMMITTED) -> Iterator[Message]:
    """Every record up to the end of the topic's partitions; waits while the broker is down."""
    consumer = reader(bootstrap, isolation)
    try:
        partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        unread = len(partitions)
        while unread:
            message = consumer.poll(SECONDS)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread -= 1
    finally:
        consumer.close()
