"""Fixtures of every client's tests: one broker in this process, and an unused topic name."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

CreateTopic = Callable[..., str]

_numbers = itertools.count(1)

# Many tests stamp records in 1970: the first check of retention, 30 s after the start, would delete them.
NO_RETENTION_CHECK = {"log.initial.task.delay.ms": "3600000"}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for all tests, which use different topic names. Tests that disturb it use `own_broker`."""
    with Broker(NO_RETENTION_CHECK) as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker that the test may stop, restart and let fail."""
    with Broker(NO_RETENTION_CHECK) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="session")
def _session_admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})


@pytest.fixture
def create_topic(_session_admin: AdminClient) -> CreateTopic:
    """Creates a topic on the shared broker: `create_topic(partitions=3, cleanup_policy="compact")`."""

    def create(partitions: int = 1, **configs: object) -> str:
        name = f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        created = _session_admin.create_topics([NewTopic(name, partitions, config=settings)])
        created[name].result(20)
        return name

    return create
