from collections.abc import Iterator

import pytest

from millrace.testing import Broker

from .clients import Clients


@pytest.fixture
def clients(broker: Broker) -> Iterator[Clients]:
    """Clients of the shared broker."""
    clients = Clients(broker)
    yield clients
    clients.close()


@pytest.fixture
def own_clients(own_broker: Broker) -> Iterator[Clients]:
    """Clients of the test's own broker."""
    clients = Clients(own_broker)
    yield clients
    clients.close()
