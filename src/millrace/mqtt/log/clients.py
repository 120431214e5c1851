"""Kafka clients with the settings that the MQTT server needs."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer

from millrace.mqtt.settings import Settings

# Critical messages only: librdkafka would report each failed connection attempt in its own format.
QUIET = {"log_level": 2}


def producer(settings: Settings, **more: Any) -> Producer:
    """A producer that acknowledges when every in-sync replica has the record."""
    return Producer(
        {
            **QUIET,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            # As Kafka's own clients: the same key is in the same partition.
            "partitioner": "murmur2_random",
            "message.max.bytes": settings.max_packet_size + 65_536,
            "queue.buffering.max.kbytes": 256 * 1024,
            **settings.properties,
            "bootstrap.servers": settings.bootstrap,
            **more,
        }
    )


def consumer(settings: Settings, **more: Any) -> Consumer:
    """A consumer of partitions that are assigned by hand, from committed transactions only."""
    return Consumer(
        {
            **QUIET,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 16 * 1024,
            "fetch.wait.max.ms": 100,
            **settings.properties,
            "bootstrap.servers": settings.bootstrap,
            # Required by librdkafka, and not used: nothing is committed.
            "group.id": f"millrace-{settings.name}",
            **more,
        }
    )


def next_batch(reader: Consumer, size: int, seconds: float) -> list[Any]:
    """The records that have arrived, as soon as there is one; none if none arrives in time."""
    # `consume` alone would wait until the batch is full.
    first = reader.poll(seconds)
    return [] if first is None else [first, *reader.consume(size - 1, 0)]
