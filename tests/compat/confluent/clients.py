"""Producers, consumers and admin clients of confluent-kafka, and steps that most tests share."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.testing import Broker

SECONDS = 30.0


class Clients:
    """Makes clients of one broker. Settings are keywords: `linger_ms` is linger.ms."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []

    def producer(self, **settings: object) -> Producer:
        producer = Producer(self._settings({"linger_ms": 0} | settings))
        self._producers.append(producer)
        return producer

    def consumer(
        self, topic: str, *, partitions: tuple[int, ...] = (0,), offset: int = 0, **settings: object
    ) -> Consumer:
        """A consumer that reads the given partitions from the given offset on."""
        consumer = Consumer(self._settings({"group_id": "none", "enable_auto_commit": False} | settings))
        consumer.assign([TopicPartition(topic, partition, offset) for partition in partitions])
        self._consumers.append(consumer)
        return consumer

    def admin(self) -> AdminClient:
        return AdminClient(self._settings({}))

    def _settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        # A client that outlives its broker would fill the test's output.
        return {"bootstrap.servers": self._broker.bootstrap, "log_level": 2} | named

    def deliver(self, producer: Producer, topic: str, value: bytes | None, **record: Any) -> Message:
        """Produce one record and wait for its acknowledgement; raises the client's error."""
        delivered: list[Message] = []
        failed: list[KafkaException] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(KafkaException(error))

        producer.produce(topic, value, on_delivery=report, **record)
        assert producer.flush(SECONDS) == 0
        if failed:
            raise failed[0]
        return delivered[0]

    def fill(
        self, producer: Producer, topic: str, count: int, *, partition: int = 0, size: int = 0
    ) -> list[bytes]:
        """Produce numbered records, at the timestamps 1,000,000 and up, and return their values."""
        errors: list[KafkaError] = []
        values = [b"%d" % number + b"." * size for number in range(count)]
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=partition,
                timestamp=1_000_000 + number,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(SECONDS) == 0
        assert errors == []
        return values

    def read(self, consumer: Consumer, count: int) -> list[Message]:
        """Read this many records; raises the consumer's error."""
        messages: list[Message] = []
        deadline = time.monotonic() + SECONDS
        while len(messages) < count:
            assert time.monotonic() < deadline, f"only {len(messages)} of {count} records came"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
        return messages

    def await_end(self, consumer: Consumer) -> None:
        """Poll until a consumer (with enable.partition.eof) reports the end."""
        message = consumer.poll(SECONDS)
        assert message is not None, "the end was not told"
        assert message.error() is not None, f"a record came: {message.value()!r}"
        assert message.error().code() == KafkaError._PARTITION_EOF

    def close(self) -> None:
        for producer in self._producers:
            producer.purge()
        for consumer in self._consumers:
            consumer.close()
