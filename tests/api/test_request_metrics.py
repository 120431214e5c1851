"""Errors are found wherever a response has them."""

from collections import Counter

import pytest

from millrace.api import HANDLERS
from millrace.api.dispatch import Handler
from millrace.api.request_metrics import ApiMetrics
from millrace.errors import Error
from millrace.steps import finish_at_once
from millrace.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from millrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from millrace.wire.schema import Response

RESPONSES = [
    (FindCoordinatorResponse(), Counter()),
    (FindCoordinatorResponse(error_code=15), Counter({Error.COORDINATOR_NOT_AVAILABLE: 1})),
    (
        FindCoordinatorResponse(
            coordinators=[
                Coordinator(error_code=15),
                Coordinator(),
                Coordinator(error_code=Error.NOT_COORDINATOR),
            ]
        ),
        Counter({Error.COORDINATOR_NOT_AVAILABLE: 1, Error.NOT_COORDINATOR: 1}),
    ),
    (
        FetchResponse(
            error_code=Error.FETCH_SESSION_ID_NOT_FOUND,
            responses=[
                FetchableTopicResponse(partitions=[PartitionData(error_code=6), PartitionData(error_code=6)]),
                FetchableTopicResponse(partitions=[PartitionData()]),
            ],
        ),
        Counter({Error.FETCH_SESSION_ID_NOT_FOUND: 1, Error.NOT_LEADER_OR_FOLLOWER: 2}),
    ),
]


@pytest.mark.parametrize(("response", "errors"), RESPONSES)
def test_every_error_is_counted_at_once_and_in_steps(response: Response, errors: Counter[Error]) -> None:
    at_once, in_steps = ApiMetrics(), ApiMetrics()
    at_once.answered(response, 0.5)
    finish_at_once(in_steps.answered_in_steps(response, 0.5))
    assert at_once.errors == in_steps.errors == errors
    assert at_once.times_ms.distribution() == in_steps.times_ms.distribution()
    assert at_once.times_ms.distribution().total == 500


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.name)
def test_the_responses_of_every_api_can_be_counted(handler: Handler) -> None:
    metrics = ApiMetrics()
    metrics.answered(handler.request.response(), 0)
    finish_at_once(metrics.answered_in_steps(handler.request.response(), 0))
    assert metrics.errors == Counter()
