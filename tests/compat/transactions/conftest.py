from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

from .reading import SECONDS, Reading

NewTopics = Callable[[int], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that looks for timed-out transactions often, and does not wait for a group's first members."""
    properties = {
        "broker.id": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Broker(properties) as broker:
        yield broker


@pytest.fixture
def reading(broker: Broker) -> Reading:
    return Reading(broker.bootstrap)


@pytest.fixture
def new_topic(broker: Broker, topic: str) -> NewTopics:
    """Creates the test's topic with a number of partitions."""

    def create(partitions: int) -> str:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(SECONDS)
        return topic

    return create
