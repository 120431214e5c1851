"""Registries for tests: in this process, over a broker that all tests share."""

import asyncio
import itertools
import threading
from collections.abc import Iterator

import httpx
import pytest

from millrace.registry.app import registry_app
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options
from millrace.services.http import Listener, listen, serve_all, url_of
from millrace.testing import Broker

DEADLINE = 30.0


class Served:
    """A registry on a thread of this process."""

    def __init__(
        self, bootstrap: str, *, topic: str = "_schemas", group: str | None = None, eligible: bool = True
    ) -> None:
        self._socket = listen("127.0.0.1", 0)
        self.url = url_of(self._socket)
        identity = Identity("127.0.0.1", self._socket.getsockname()[1], eligible=eligible)
        self.app = registry_app(Options(bootstrap, identity, topic, group or f"{topic}-registries"))
        self._stopped = asyncio.Event()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE, trust_env=False)

    def _run(self) -> None:
        self._loop.run_until_complete(
            serve_all([Listener(self.app, self._socket)], self._stopped, on_ready=self._ready.set)
        )

    @property
    def is_leader(self) -> bool:
        return bool(self.app.state.registry.is_leader)

    def close(self) -> None:
        self.http.close()
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        self._loop.close()


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
