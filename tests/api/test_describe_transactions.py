"""DescribeTransactions."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.describe_transactions import DescribeTransactionsRequest

from ..node import create_topic
from .api import Api
from .conftest import Call
from .transactions import TIMEOUT_MS, begin, init_producer


@pytest.fixture(autouse=True)
def topic(api: Api) -> None:
    create_topic(api, "t", 1)


def test_an_open_transaction_is_described(call: Call, api: Api) -> None:
    producer = init_producer(call)
    before_ms = api.clock.now_ms()
    begin(call, producer, "t")
    (state,) = call(DescribeTransactionsRequest(transactional_ids=["id"])).transaction_states
    assert (state.error_code, state.transactional_id) == (Error.NONE, "id")
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert (state.producer_id, state.producer_epoch) == producer
    assert before_ms <= state.transaction_start_time_ms <= api.clock.now_ms()
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]


def test_an_id_without_a_transaction_is_described(call: Call) -> None:
    init_producer(call)
    (state,) = call(DescribeTransactionsRequest(transactional_ids=["id"])).transaction_states
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])


def test_each_id_is_answered_apart(call: Call) -> None:
    init_producer(call)
    response = call(DescribeTransactionsRequest(transactional_ids=["id", "unknown", ""]))
    assert [state.error_code for state in response.transaction_states] == [
        Error.NONE,
        Error.TRANSACTIONAL_ID_NOT_FOUND,
        Error.INVALID_REQUEST,
    ]
