"""The same tests against our broker and against Apache Kafka: the library has to work with both."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from confluent_kafka import Producer

from millrace.admin.topics import NewTopic, create_topics, wait_for_topics
from millrace.client import Client
from millrace.jars import JarsUnavailable, apache_kafka_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import ApacheKafka

from .. import jvm

PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # Records are stamped in 1970: the first check of retention, 30 s after the start, would delete them.
    "log.initial.task.delay.ms": "3600000",
}
NODE_ID = 1

_numbers = itertools.count(1)

Send = Callable[..., None]


@pytest.fixture(scope="session", params=["millrace", pytest.param("apache_kafka", marks=pytest.mark.java)])
def broker_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def bootstrap(broker_name: str) -> Iterator[str]:
    if broker_name == "millrace":
        with Broker(PROPERTIES) as broker:
            yield broker.bootstrap
        return
    try:
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with ApacheKafka(PROPERTIES, jvm_options=jvm.BROKER) as kafka:
        yield kafka.bootstrap


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(bootstrap, timeout_seconds=30) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name for a topic, group or transactional id that nothing else has."""
    return f"admin-{next(_numbers)}"


@pytest.fixture
async def topic(client: Client, name: str) -> str:
    """A topic with two partitions that can be written to."""
    (await create_topics(client, [NewTopic(name, partitions=2, replication_factor=1)])).all()
    await wait_for_topics(client, [name])
    return name


@pytest.fixture
def send(bootstrap: str) -> Send:
    """Write records to a partition, with timestamps from 1000 ms on."""

    def send(topic: str, partition: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=1000 + number)
        assert producer.flush(30) == 0

    return send
