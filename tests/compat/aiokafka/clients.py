"""Producers, consumers and admin clients of aiokafka, and steps that most tests share."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import ConsumerRecord

from millrace.testing import Broker

SECONDS = 30.0


class Clients:
    """Makes clients of one broker; settings are aiokafka's own keywords."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open: list[Any] = []

    async def producer(self, **settings: Any) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self._broker.bootstrap, **settings)
        self._open.append(producer)
        await producer.start()
        return producer

    async def consumer(
        self, topic: str, *, partitions: tuple[int, ...] = (0,), offset: int | None = 0, **settings: Any
    ) -> AIOKafkaConsumer:
        """A consumer that reads the given partitions, from the given offset or by its reset policy."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap, **settings)
        self._open.append(consumer)
        await consumer.start()
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(assigned)
        if offset is not None:
            for partition in assigned:
                consumer.seek(partition, offset)
        return consumer

    async def admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._broker.bootstrap)
        await admin.start()
        return admin

    async def fill(self, topic: str, count: int, *, size: int = 0, **settings: Any) -> list[bytes]:
        """Produce numbered records, at the timestamps 1,000,000 and up, and return their values."""
        producer = await self.producer(**settings)
        values = [b"%d" % number + b"." * size for number in range(count)]
        sent = [
            await producer.send(topic, value, partition=0, timestamp_ms=1_000_000 + number)
            for number, value in enumerate(values)
        ]
        metadata = await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
        assert [record.offset for record in metadata] == list(range(count))
        return values

    async def read(self, consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
        """Read this many records; raises the consumer's error."""
        async with asyncio.timeout(SECONDS):
            return [await consumer.getone() for _ in range(count)]

    async def close(self) -> None:
        for client in self._open:
            await client.stop()
