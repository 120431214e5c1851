"""A handler that fails unexpectedly affects only its own client, which gets an error or is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.api.context import Context
from millrace.api.dispatch import Handler
from millrace.client import ConnectionLost
from millrace.errors import Error
from millrace.testing import Broker
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from millrace.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

from ..wire_client import WireClient


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def fails_at_once(ctx: Context, handler: Handler, request: Any) -> Any:
    raise ZeroDivisionError("a bug in a handler")


async def fails_later(ctx: Context, handler: Handler, request: Any) -> Any:
    raise ZeroDivisionError("a bug in a handler")


def returns_nonsense(ctx: Context, handler: Handler, request: Any) -> Any:
    if handler.request is ListOffsetsRequest:
        return ListOffsetsResponse(throttle_time_ms=2**40)
    return DescribeClusterResponse(controller_id=2**40)


async def returns_nonsense_later(ctx: Context, handler: Handler, request: Any) -> Any:
    return returns_nonsense(ctx, handler, request)


FAILURES = (fails_at_once, fails_later, returns_nonsense, returns_nonsense_later)


@pytest.mark.parametrize("failure", FAILURES)
def test_an_api_whose_response_has_no_error_code_closes_the_connection(
    broker: Broker, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on("ListOffsets", failure)
    with WireClient(broker.bootstrap) as client, WireClient(broker.bootstrap) as other:
        with pytest.raises(ConnectionLost):
            client.send(ListOffsetsRequest(), 5)
        assert not other.send(ApiVersionsRequest(), 0).error_code
    assert "a bug: ListOffsets" in caplog.text


@pytest.mark.parametrize("failure", [fails_at_once, fails_later])
def test_an_api_whose_response_has_an_error_code_returns_it(broker: Broker, failure: Any) -> None:
    broker.on("DescribeCluster", failure)
    with WireClient(broker.bootstrap) as client:
        response = client.send(DescribeClusterRequest(), 0)
        assert response.error_code == Error.UNKNOWN_SERVER_ERROR
        assert not client.send(ApiVersionsRequest(), 0).error_code
