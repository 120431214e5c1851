"""aiokafka through restarts, recreated topics and lost responses: it recovers by itself."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import NewTopic

from millrace.testing import Broker, drop_answer

from .clients import SECONDS, Clients

# A restarted broker is ready at once: clients need not wait long before they retry.
EAGER: dict[str, Any] = {"retry_backoff_ms": 10, "metadata_max_age_ms": 200}


async def test_clients_continue_after_a_restart(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = await own_clients.producer(enable_idempotence=True, **EAGER)
    await producer.send_and_wait(topic, b"before")
    consumer = await own_clients.consumer(topic, fetch_max_wait_ms=50, **EAGER)
    assert (await own_clients.read(consumer, 1))[0].value == b"before"
    await asyncio.to_thread(own_broker.restart)
    assert (await producer.send_and_wait(topic, b"after a restart")).offset == 1
    await asyncio.to_thread(own_broker.kill9)
    await asyncio.to_thread(own_broker.start)
    assert (await producer.send_and_wait(topic, b"after a crash")).offset == 2
    assert [record.value for record in await own_clients.read(consumer, 2)] == [
        b"after a restart",
        b"after a crash",
    ]


async def test_a_lost_answer_makes_no_duplicate(own_broker: Broker, own_clients: Clients, topic: str) -> None:
    producer = await own_clients.producer(enable_idempotence=True, **EAGER)
    await producer.send_and_wait(topic, b"0")
    own_broker.on("Produce", drop_answer(times=1))
    assert (await producer.send_and_wait(topic, b"1")).offset == 1
    assert (await producer.send_and_wait(topic, b"2")).offset == 2
    records = await own_clients.read(await own_clients.consumer(topic), 3)
    assert [record.value for record in records] == [b"0", b"1", b"2"]
    assert own_broker.broker.partitions.leader(topic, 0).high_watermark == 3


async def test_a_topic_recreated_under_a_producer_and_a_consumer(topic: str) -> None:
    # Otherwise a request between the deletion and the creation would create the topic.
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        clients = Clients(broker)
        admin = await clients.admin()
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        producer = await clients.producer(**EAGER)
        consumer = await clients.consumer(topic, auto_offset_reset="earliest", fetch_max_wait_ms=50, **EAGER)
        for number in range(5):
            await producer.send_and_wait(topic, b"old %d" % number)
        assert len(await clients.read(consumer, 5)) == 5
        await admin.delete_topics([topic])
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        assert (await producer.send_and_wait(topic, b"new")).offset == 0
        await read_up_to(consumer, b"new")
        await admin.close()
        await clients.close()


async def read_up_to(consumer: AIOKafkaConsumer, value: bytes) -> None:
    async with asyncio.timeout(SECONDS):
        while (await consumer.getone()).value != value:
            pass
