import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from .members import QUICK, Crew

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def next_broker() -> Iterator[Broker]:
    """A broker whose groups rebalance quickly."""
    with Broker(QUICK) as broker:
        yield broker


@pytest.fixture
def crew(next_broker: Broker) -> Iterator[Crew]:
    """Members of the test's own group."""
    crew = Crew(next_broker, f"crew-{next(_numbers)}")
    yield crew
    crew.close()


@pytest.fixture
def topic(next_broker: Broker) -> str:
    name = f"next-{next(_numbers)}"
    create(next_broker, name)
    return name


def create(broker: Broker, name: str, partitions: int = 4) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(name, partitions)])[name].result(20)
