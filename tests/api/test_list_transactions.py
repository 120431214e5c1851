"""ListTransactions and its filters."""

from typing import Any

import pytest

from millrace.errors import Error
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.list_transactions import ListTransactionsRequest

from ..node import create_topic
from .api import Api
from .conftest import Call
from .transactions import begin, init_producer

VERSIONS = pytest.mark.parametrize("version", range(3))


@pytest.fixture
def producers(call: Call, api: Api) -> dict[str, ProducerIdentity]:
    """One id of each kind: empty, open and committed."""
    create_topic(api, "t", 1)
    producers = {name: init_producer(call, name) for name in ("empty", "open", "committed")}
    begin(call, producers["open"], "t", "open")
    begin(call, producers["committed"], "t", "committed")
    producer_id, producer_epoch = producers["committed"]
    request = EndTxnRequest(
        transactional_id="committed", producer_id=producer_id, producer_epoch=producer_epoch, committed=True
    )
    assert call(request, 3).error_code == Error.NONE
    return producers


def listed(response: Any) -> dict[str, str]:
    return {state.transactional_id: state.transaction_state for state in response.transaction_states}


@VERSIONS
def test_everything_is_listed(call: Call, producers: dict[str, ProducerIdentity], version: int) -> None:
    response = call(ListTransactionsRequest(), version)
    assert listed(response) == {"empty": "Empty", "open": "Ongoing", "committed": "CompleteCommit"}
    assert {state.producer_id for state in response.transaction_states} == {
        producer.producer_id for producer in producers.values()
    }


@VERSIONS
def test_by_state(call: Call, producers: dict[str, ProducerIdentity], version: int) -> None:
    response = call(ListTransactionsRequest(state_filters=["Ongoing", "Empty", "Odd"]), version)
    assert set(listed(response)) == {"open", "empty"}
    assert response.unknown_state_filters == ["Odd"]
    assert listed(call(ListTransactionsRequest(state_filters=["Odd"]), version)) == {}


@VERSIONS
def test_by_producer_id(call: Call, producers: dict[str, ProducerIdentity], version: int) -> None:
    wanted = [producers["empty"].producer_id, 4242]
    assert set(listed(call(ListTransactionsRequest(producer_id_filters=wanted), version))) == {"empty"}


@pytest.mark.parametrize("version", [1, 2])
def test_by_duration(call: Call, producers: dict[str, ProducerIdentity], version: int) -> None:
    assert "open" not in listed(call(ListTransactionsRequest(duration_filter=60_000), version))
    assert "open" in listed(call(ListTransactionsRequest(duration_filter=-1), version))


def test_by_pattern(call: Call, producers: dict[str, ProducerIdentity]) -> None:
    assert set(listed(call(ListTransactionsRequest(transactional_id_pattern="e.*|op")))) == {"empty"}
    assert len(listed(call(ListTransactionsRequest(transactional_id_pattern="")))) == 3
    broken = call(ListTransactionsRequest(transactional_id_pattern="("))
    assert broken.error_code == Error.INVALID_REGULAR_EXPRESSION
