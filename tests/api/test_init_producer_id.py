"""InitProducerId without transactions."""

from millrace.errors import Error
from millrace.wire.messages.init_producer_id import InitProducerIdRequest

from .conftest import Call


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
