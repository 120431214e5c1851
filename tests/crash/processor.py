"""A process that reads, processes and writes in transactions: `processor.py BOOTSTRAP NUMBER SEED`.

It does not recover from errors: every failure ends the process, and the test starts another one.
"""

import random
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SOURCE, SINK, GROUP = "source", "sink", "processors"
SECONDS = 30.0


def process(value: bytes) -> bytes:
    return b"processed " + value


def main(bootstrap: str, number: str, seed: str) -> None:
    client = {
        "bootstrap.servers": bootstrap,
        # If librdkafka bootstraps again while it waits for a coordinator, it waits forever.
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    producer = Producer(client | {"transactional.id": f"processor-{number}", "retry.backoff.ms": 20})
    # Before the offsets are fetched: this settles the transactions of the previous process.
    retry(lambda: producer.init_transactions(SECONDS))
    consumer = Consumer(
        client
        | {
            "group.id": GROUP,
            # The next process takes the place of this one without a rebalance.
            "group.instance.id": f"processor-{number}",
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([SOURCE])
    choose = random.Random(f"{seed} {number}")
    while True:
        messages = consumer.consume(choose.randint(1, 30), timeout=0.05)
        records = [message for message in messages if message.error() is None]
        if records:
            transact(producer, consumer, records)
            # Gives the test time to kill it here.
            time.sleep(choose.random() * 0.02)


def transact(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    producer.begin_transaction()
    positions: dict[int, int] = {}
    for record in records:
        value, partition, offset = record.value(), record.partition(), record.offset()
        assert value is not None and partition is not None and offset is not None
        producer.produce(SINK, process(value), partition=partition)
        positions[partition] = offset + 1
    offsets = [TopicPartition(SOURCE, partition, offset) for partition, offset in positions.items()]
    metadata = consumer.consumer_group_metadata()
    retry(lambda: producer.send_offsets_to_transaction(offsets, metadata, SECONDS))
    retry(lambda: producer.commit_transaction(SECONDS))


def retry(step: Callable[[], object]) -> None:
    """Retry while the client reports a retriable error."""
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
