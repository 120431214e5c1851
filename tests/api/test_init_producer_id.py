"""InitProducerId, without and with a transactional id."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.init_producer_id import InitProducerIdRequest

from .conftest import Call
from .transactions import init_producer


def test_every_producer_gets_its_own_id(call: Call) -> None:
    ids = [call(InitProducerIdRequest(transactional_id=None)).producer_id for _ in range(5)]
    assert len(set(ids)) == 5


def test_a_producer_that_asks_again_starts_afresh(call: Call) -> None:
    first = call(InitProducerIdRequest(transactional_id=None))
    again = call(
        InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=0)
    )
    assert again.producer_id != first.producer_id
    assert (again.producer_epoch, again.error_code) == (0, Error.NONE)


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(call: Call, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    first, second = call(request, version), call(request, version)
    assert (first.error_code, first.producer_epoch) == (Error.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_may_go_on_from_the_identity_it_had(call: Call, version: int) -> None:
    first = init_producer(call)
    request = InitProducerIdRequest(
        transactional_id="id", transaction_timeout_ms=60_000, producer_id=first.producer_id, producer_epoch=0
    )
    assert call(request, version).producer_epoch == 1
    init_producer(call)
    fenced = Error.PRODUCER_FENCED if version >= 4 else Error.INVALID_PRODUCER_EPOCH
    assert call(request, version).error_code == fenced


@pytest.mark.parametrize("identity", [(7, -1), (-1, 7)])
def test_half_an_identity_is_refused(call: Call, identity: tuple[int, int]) -> None:
    producer_id, producer_epoch = identity
    request = InitProducerIdRequest(
        transactional_id="id",
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    assert call(request).error_code == Error.INVALID_REQUEST


def test_invalid_requests_get_their_error(call: Call) -> None:
    empty = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    assert call(empty).error_code == Error.INVALID_REQUEST
    patient = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=2**31 - 1)
    assert call(patient).error_code == Error.INVALID_TRANSACTION_TIMEOUT
