"""A broker and an MQTT server that the tests of a module share."""

import itertools
from collections.abc import Iterator

import pytest

from millrace.mqtt.settings import Settings
from millrace.testing import Broker

from .serving import RunningServer, running

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[RunningServer]:
    with running(Settings(bootstrap=broker.bootstrap)) as server:
        yield server


@pytest.fixture
def name() -> str:
    """A name for topics and clients that no other test uses."""
    return f"test{next(_numbers)}"
