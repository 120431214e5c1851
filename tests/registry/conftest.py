"""Registries for tests: in this process, over a broker that all tests share."""

import itertools
from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from tests.served_app import DEADLINE, ServedApp

from millrace.registry.app import registry_app
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options
from millrace.testing import Broker

__all__ = ["DEADLINE", "Served"]


class Served(ServedApp):
    """A registry on a thread of this process."""

    def __init__(
        self, bootstrap: str, *, topic: str = "_schemas", group: str | None = None, eligible: bool = True
    ) -> None:
        def app(port: int) -> Starlette:
            identity = Identity("127.0.0.1", port, eligible=eligible)
            return registry_app(Options(bootstrap, identity, topic, group or f"{topic}-registries"))

        super().__init__(app)

    @property
    def is_leader(self) -> bool:
        return bool(self.app.state.registry.is_leader)


@pytest.fixture(scope="session")
def registry_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def served(registry_broker: Broker) -> Iterator[Served]:
    """The registry that tests share; each uses subjects of its own."""
    registry = Served(registry_broker.bootstrap)
    yield registry
    registry.close()


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return served.http


_NUMBERS = itertools.count(1)


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"subject-{next(_NUMBERS)}"
