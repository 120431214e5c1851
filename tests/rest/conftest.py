"""A proxy for tests, with a registry and a broker that all tests share."""

import itertools
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.served_app import ServedApp

from millrace.registry.app import registry_app
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options as RegistryOptions
from millrace.rest.app import Options, rest_app
from millrace.testing import Broker


@pytest.fixture(scope="session")
def rest_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rest_registry(rest_broker: Broker) -> Iterator[ServedApp]:
    served = ServedApp(
        lambda port: registry_app(RegistryOptions(rest_broker.bootstrap, Identity("127.0.0.1", port)))
    )
    yield served
    served.close()


@pytest.fixture(scope="session")
def rest(rest_broker: Broker, rest_registry: ServedApp) -> Iterator[ServedApp]:
    served = ServedApp(lambda _: rest_app(Options(rest_broker.bootstrap, rest_registry.url)))
    yield served
    served.close()


@pytest.fixture
def http(rest: ServedApp) -> httpx.Client:
    return rest.http


@pytest.fixture(scope="session")
def cluster(rest: ServedApp) -> str:
    """The path of the cluster in version 3."""
    return f"/v3/clusters/{rest.http.get('/v3/clusters').json()['data'][0]['cluster_id']}"


_NUMBERS = itertools.count(1)


@pytest.fixture
def topic(http: httpx.Client, cluster: str) -> str:
    """A topic of two partitions that no other test uses."""
    name = f"topic-{next(_NUMBERS)}"
    response = http.post(f"{cluster}/topics", json={"topic_name": name, "partitions_count": 2})
    assert response.status_code == 201, response.text
    return name


Fails = Callable[[httpx.Response, int], str]


@pytest.fixture
def fails() -> Fails:
    def check(response: httpx.Response, code: int) -> str:
        body = response.json()
        assert (response.status_code, body["error_code"]) == (int(str(code)[:3]), code), body
        return str(body["message"])

    return check
