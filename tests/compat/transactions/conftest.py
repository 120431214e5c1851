from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.testing import Broker

from .reading import SECONDS, Reading

NewTopics = Callable[[int], str]

# Timed-out transactions are found quickly, and no group waits for its first members.
PROPERTIES = {
    "broker.id": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(PROPERTIES) as broker:
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


@pytest.fixture(scope="session")
def java_and_jars() -> None:
    """Skip, with a reason, without a JDK or without a network to fetch the jars the first time."""
    try:
        apache_kafka_classpath()
        compiler = java().resolve().with_name("javac")
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    if not compiler.exists():
        pytest.skip(f"{java()} has no compiler; install a JDK, not a JRE")
