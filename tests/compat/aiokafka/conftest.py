from collections.abc import AsyncIterator

import pytest

from millrace.testing import Broker

from .clients import Clients


@pytest.fixture
async def clients(broker: Broker) -> AsyncIterator[Clients]:
    """Clients of the shared broker."""
    clients = Clients(broker)
    yield clients
    await clients.close()


@pytest.fixture
async def own_clients(own_broker: Broker) -> AsyncIterator[Clients]:
    """Clients of the test's own broker."""
    clients = Clients(own_broker)
    yield clients
    await clients.close()
