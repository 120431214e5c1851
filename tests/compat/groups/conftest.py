import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from ..conftest import NO_RETENTION_CHECK
from .consumers import CLIENTS, SESSION, GroupConsumer

_numbers = itertools.count(1)


class Groups:
    """Makes topics and members of groups for one client, and closes those left open."""

    def __init__(self, broker: Broker, client: str) -> None:
        self.broker = broker
        self.client = client
        self._open: list[GroupConsumer] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})

    def topic(self, partitions: int = 4) -> str:
        name = f"grouped-{next(_numbers)}"
        self._admin.create_topics([NewTopic(name, partitions)])[name].result(20)
        return name

    def fill(self, topic: str, count: int, *, partitions: int = 4) -> None:
        """Records 0, 1, ... over the partitions in turn, at timestamps 1,000,000 and up."""
        for number in range(count):
            self._producer.produce(
                topic, b"%d" % number, partition=number % partitions, timestamp=1_000_000 + number
            )
        assert self._producer.flush(20) == 0

    def join(self, topic: str, group: str, **settings: Any) -> GroupConsumer:
        quick = SESSION | {"metadata_max_age_ms": 2_000}
        consumer: GroupConsumer = CLIENTS[self.client](self.broker.bootstrap, topic, group, quick | settings)
        self._open.append(consumer)
        return consumer

    def leave(self, consumer: GroupConsumer) -> None:
        self._open.remove(consumer)
        consumer.close()

    def close(self) -> None:
        for consumer in self._open:
            consumer.close()


@pytest.fixture(scope="module")
def group_broker() -> Iterator[Broker]:
    with Broker({"group.min.session.timeout.ms": "500"} | NO_RETENTION_CHECK) as broker:
        yield broker


@pytest.fixture(params=list(CLIENTS))
def groups(group_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Groups]:
    """A client's groups on a broker that the module's tests share."""
    groups = Groups(group_broker, request.param)
    yield groups
    groups.close()
    group_broker.clear_faults()


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"
