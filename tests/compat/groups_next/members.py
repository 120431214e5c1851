"""Members of one group, each a consumer of confluent-kafka, polled in turn until a condition holds."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from millrace.testing import Broker

SECONDS = 30.0
POLL_SECONDS = 0.02
# Tests need not wait seconds for a heartbeat.
QUICK = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


class GroupMember:
    """One consumer of either protocol; keeps every partition it has owned and every record it has read."""

    def __init__(self, broker: Broker, group: str, subscription: list[str], settings: dict[str, Any]) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.read: list[tuple[str, int, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 2,
                **settings,
            }
        )
        self._consumer.subscribe(subscription)

    def poll(self) -> None:
        message = self._consumer.poll(POLL_SECONDS)
        self.owned = {(partition.topic, partition.partition) for partition in self._consumer.assignment()}
        if message is None:
            return
        if message.error():
            if message.error().retriable() or message.error().code() < 0:
                return
            raise KafkaException(message.error())
        self.read.append((message.topic(), message.partition(), message.offset()))

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Crew:
    """The members of one group."""

    def __init__(self, broker: Broker, group: str) -> None:
        self.broker = broker
        self.group = group
        self.members: list[GroupMember] = []

    def join(self, *subscription: str, **settings: Any) -> GroupMember:
        """A member of the consumer protocol."""
        return self._join(subscription, {"group.protocol": "consumer"} | settings)

    def join_classic(self, *subscription: str, **settings: Any) -> GroupMember:
        classic = {
            "group.protocol": "classic",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        return self._join(subscription, classic | settings)

    def _join(self, subscription: tuple[str, ...], settings: dict[str, Any]) -> GroupMember:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        member = GroupMember(self.broker, self.group, list(subscription), named)
        self.members.append(member)
        return member

    def leave(self, member: GroupMember) -> None:
        self.members.remove(member)
        member.close()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll all members until the condition holds."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, (
                f"in vain: {what}; {[member.owned for member in self.members]}"
            )
            for member in self.members:
                member.poll()

    def share(self, partitions: int) -> None:
        """Poll until all partitions are owned, spread evenly over the members."""

        def is_shared() -> bool:
            loads = [len(member.owned) for member in self.members]
            owned = set().union(*(member.owned for member in self.members))
            return len(owned) == sum(loads) == partitions and max(loads) - min(loads) <= 1

        self.until(is_shared, f"{partitions} partitions shared by {len(self.members)}")

    def close(self) -> None:
        for member in self.members:
            member.close()


def fill(broker: Broker, topic: str, count: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0
