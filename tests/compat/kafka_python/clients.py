"""Producers, consumers and admin clients of kafka-python, and steps that most tests share."""

import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from millrace.testing import Broker

SECONDS = 30.0


class Clients:
    """Makes clients of one broker; settings are kafka-python's own keywords."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open: list[Any] = []

    def producer(self, **settings: Any) -> KafkaProducer:
        return self._opened(KafkaProducer(bootstrap_servers=self._broker.bootstrap, **settings))

    def consumer(
        self, topic: str, *, partitions: tuple[int, ...] = (0,), offset: int | None = 0, **settings: Any
    ) -> KafkaConsumer:
        """A consumer that reads the given partitions, from the given offset or by its reset policy."""
        consumer = self._opened(KafkaConsumer(bootstrap_servers=self._broker.bootstrap, **settings))
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(assigned)
        if offset is not None:
            for partition in assigned:
                consumer.seek(partition, offset)
        return consumer

    def admin(self) -> KafkaAdminClient:
        return self._opened(KafkaAdminClient(bootstrap_servers=self._broker.bootstrap))

    def _opened(self, client: Any) -> Any:
        self._open.append(client)
        return client

    def fill(self, topic: str, count: int, *, size: int = 0, **settings: Any) -> list[bytes]:
        """Produce numbered records, at the timestamps 1,000,000 and up, and return their values."""
        producer = self.producer(**settings)
        values = [b"%d" % number + b"." * size for number in range(count)]
        sent = [
            producer.send(topic, value, partition=0, timestamp_ms=1_000_000 + number)
            for number, value in enumerate(values)
        ]
        producer.flush(SECONDS)
        assert [future.get(SECONDS).offset for future in sent] == list(range(count))
        return values

    def read(self, consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
        """Read this many records; raises the consumer's error."""
        records: list[ConsumerRecord] = []
        deadline = time.monotonic() + SECONDS
        while len(records) < count:
            assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
            polled = consumer.poll(timeout_ms=200, max_records=count - len(records))
            for of_one_partition in polled.values():
                records.extend(of_one_partition)
        return records

    def close(self) -> None:
        for client in self._open:
            client.close()
