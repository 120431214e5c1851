"""What readers of both isolation levels see of a topic."""

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

SECONDS = 30.0


class Reading:
    """Reads topics whole, by assignment."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def committed(self, topic: str) -> list[bytes]:
        return self._read(topic, "read_committed")

    def everything(self, topic: str) -> list[bytes]:
        """Records of open and aborted transactions too."""
        return self._read(topic, "read_uncommitted")

    def await_committed(self, topic: str, expected: list[bytes]) -> None:
        """Wait until readers see what they should: a consumer may have to wait for a transaction's end."""
        deadline = time.monotonic() + SECONDS
        while (seen := self.committed(topic)) != expected:
            assert time.monotonic() < deadline, f"{seen} instead of {expected}"
            time.sleep(0.05)

    def is_open(self, topic: str) -> bool:
        """Whether a transaction holds back readers of committed records."""
        return self._end(topic, "read_committed") < self._end(topic, "read_uncommitted")

    def _end(self, topic: str, isolation: str) -> int:
        consumer = self._consumer(isolation)
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
                for partition in consumer.list_topics(topic, SECONDS).topics[topic].partitions
            )
        finally:
            consumer.close()

    def _read(self, topic: str, isolation: str) -> list[bytes]:
        consumer = self._consumer(isolation)
        try:
            partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            values: list[bytes] = []
            unread = len(partitions)
            while unread:
                message = consumer.poll(SECONDS)
                assert message is not None, "the broker has not answered"
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread -= 1
            return values
        finally:
            consumer.close()

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reading",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "log_level": 2,
            }
        )
