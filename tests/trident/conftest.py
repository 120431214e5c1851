"""Fixtures of Trident's tests: databases, a broker, and a state of each store."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.testing import Broker
from millrace.trident import state
from millrace.trident.state import StateSpec

from . import databases

_NUMBERS = itertools.count()
STORES = ("memory", "sqlite", "postgresql", "redis", "log")


@pytest.fixture(scope="session")
def postgresql_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with databases.postgresql(tmp_path_factory.mktemp("postgresql")) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with databases.redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """One broker for all tests of Trident, which use different topics."""
    with Broker() as running:
        yield running


@pytest.fixture
def new_state(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., StateSpec]:
    """Declares a new state in a store, which is started if it is a server."""

    def declare(store: str, kind: str = "opaque") -> StateSpec:
        name = f"counts_{next(_NUMBERS)}"
        match store:
            case "memory":
                return state.memory(name, kind=kind)
            case "sqlite":
                return state.sqlite(tmp_path / "states.db", name, kind=kind)
            case "postgresql":
                return state.postgresql(request.getfixturevalue("postgresql_url"), name, kind=kind)
            case "redis":
                return state.redis(request.getfixturevalue("redis_url"), name, kind=kind)
            case "log":
                return state.log(name, kind=kind)
        raise AssertionError(store)

    return declare
