"""One member of a group, in its own process so that it can be frozen and killed.

Run as `python member.py BOOTSTRAP GROUP PROTOCOL TOPIC`. Prints one JSON line per event, with the
machine-wide monotonic time, and leaves its group in order on SIGTERM.
"""

import json
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_SECONDS = 0.05


def tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


def main() -> None:
    bootstrap, group, protocol, topic = sys.argv[1:]
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
    consumer = Consumer(settings)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    def indexes(partitions: list[TopicPartition]) -> list[int]:
        return [partition.partition for partition in partitions]

    signal.signal(signal.SIGTERM, stop)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: tell("assigned", partitions=indexes(partitions)),
        on_revoke=lambda _, partitions: tell("revoked", partitions=indexes(partitions)),
        on_lost=lambda _, partitions: tell("lost", partitions=indexes(partitions)),
    )
    tell("started")
    while not stopping:
        messages = [m for m in consumer.consume(100, POLL_SECONDS) if m.error() is None]
        if not messages:
            tell("idle")
            continue
        tell("read", records=[(m.partition(), m.offset(), (m.value() or b"").decode()) for m in messages])
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            tell("commit failed", reason=error.args[0].name())
    consumer.close()
    tell("left")


if __name__ == "__main__":
    main()
