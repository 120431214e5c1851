"""EndTxn in every version."""

import pytest

from millrace.errors import Error
from millrace.txn.transaction_state import ProducerIdentity, State
from millrace.wire.messages.end_txn import EndTxnRequest

from ..node import create_topic
from .api import Api
from .conftest import Call
from .transactions import begin, init_producer

VERSIONS = pytest.mark.parametrize("version", range(6))


@pytest.fixture(autouse=True)
def topic(api: Api) -> None:
    create_topic(api, "t", 1)


def end_of(producer: ProducerIdentity, *, committed: bool = True, name: str = "id") -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_as_asked(call: Call, api: Api, version: int, committed: bool) -> None:
    producer = init_producer(call)
    begin(call, producer, "t")
    response = call(end_of(producer, committed=committed), version)
    assert response.error_code == Error.NONE
    assert response.producer_id == producer.producer_id
    assert response.producer_epoch == (1 if version >= 5 else 0)
    found = api.transactions.find("id")
    assert found is not None
    assert found.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


@VERSIONS
def test_a_repeated_request_is_answered_alike(call: Call, version: int) -> None:
    producer = init_producer(call)
    begin(call, producer, "t")
    assert call(end_of(producer), version) == call(end_of(producer), version)


@VERSIONS
def test_a_fenced_producer_gets_an_error_that_its_version_knows(call: Call, version: int) -> None:
    zombie = init_producer(call)
    init_producer(call)
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    response = call(end_of(zombie), version)
    assert response.error_code == fenced
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@VERSIONS
def test_ends_in_the_wrong_state_are_refused(call: Call, version: int) -> None:
    producer = init_producer(call)
    assert call(end_of(producer), version).error_code == Error.INVALID_TXN_STATE
    unknown = call(end_of(producer, name="unknown"), version)
    assert unknown.error_code == Error.INVALID_PRODUCER_ID_MAPPING
    assert call(end_of(producer, name=""), version).error_code == Error.INVALID_REQUEST
