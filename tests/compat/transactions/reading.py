"""A topic as readers of both isolation levels see it."""

import time

from confluent_kafka import TopicPartition

from ...reading import COMMITTED, UNCOMMITTED, read_topic, reader

SECONDS = 30.0


class Reading:
    """Reads whole topics, by assignment."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def committed(self, topic: str) -> list[bytes]:
        return self._read(topic, COMMITTED)

    def everything(self, topic: str) -> list[bytes]:
        """Records of open and aborted transactions too."""
        return self._read(topic, UNCOMMITTED)

    def await_committed(self, topic: str, expected: list[bytes]) -> None:
        """Wait until readers see the expected records: a transaction may have to end first."""
        deadline = time.monotonic() + SECONDS
        while (seen := self.committed(topic)) != expected:
            assert time.monotonic() < deadline, f"{seen} instead of {expected}"
            time.sleep(0.05)

    def is_open(self, topic: str) -> bool:
        """Whether a transaction holds back readers of committed records."""
        return self._end(topic, COMMITTED) < self._end(topic, UNCOMMITTED)

    def _end(self, topic: str, isolation: str) -> int:
        consumer = reader(self._bootstrap, isolation)
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
                for partition in consumer.list_topics(topic, SECONDS).topics[topic].partitions
            )
        finally:
            consumer.close()

    def _read(self, topic: str, isolation: str) -> list[bytes]:
        return [message.value() or b"" for message in read_topic(self._bootstrap, topic, isolation)]
