"""Requests that schemathesis makes from the OpenAPI description: none makes the registry fail."""

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from tests.registry.conftest import Served

from millrace.testing import Broker

load_all_checks()

WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.fixture
def served(registry_broker: Broker, subject: str) -> Iterator[Served]:
    """A registry of its own: the requests change modes and levels of everything."""
    registry = Served(registry_broker.bootstrap, topic=subject)
    yield registry
    registry.close()


@pytest.mark.proof
def test_every_request_has_a_described_response(served: Served) -> None:
    checks = [CHECKS.get_one(name) for name in WANTED]
    api = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def requests(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=checks)

        requests()


def test_every_described_operation_exists(served: Served) -> None:
    described = served.http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    for path, operations in described["paths"].items():
        url = served.url + path.format(subject="described", version="1", id="1", guid="g")
        for method in operations:
            body = {"schema": '"string"', "mode": "READWRITE", "compatibility": "BACKWARD"}
            response = httpx.request(method, url, json=body)
            # A subject may be missing, but not a route.
            assert response.status_code not in (404, 405) or response.json()["error_code"] > 1000, path
