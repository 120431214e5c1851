"""Members of consumer groups that join and hold their partitions."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, TopicPartition

WAIT_SECONDS = 30.0


@contextmanager
def members(
    bootstrap: str, group: str, topics: list[str], *, partitions: int, count: int = 1, **settings: str
) -> Iterator[list[Consumer]]:
    """Members of a group that have all partitions assigned; none commits by itself."""
    with ExitStack() as leaving:
        joined = []
        for number in range(1, count + 1):
            properties = {name.replace("_", "."): value for name, value in settings.items()}
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group,
                    "client.id": f"member-{number}",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **properties,
                }
            )
            leaving.callback(consumer.close)
            consumer.subscribe(topics)
            joined.append(consumer)
        _wait_for_partitions(joined, partitions)
        yield joined


def _wait_for_partitions(consumers: list[Consumer], partitions: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        for consumer in consumers:
            consumer.poll(0.05)
        owned = [len(consumer.assignment()) for consumer in consumers]
        if sum(owned) == partitions and all(owned):
            return
        assert time.monotonic() < deadline, f"the members own {owned} of {partitions} partitions"


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit offsets for a group without joining it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()
