"""AddOffsetsToTxn: a group's offsets become part of a transaction."""

import pytest

from millrace.errors import Error
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

from .api import Api
from .conftest import Call
from .transactions import init_producer

VERSIONS = pytest.mark.parametrize("version", range(5))


def request_of(producer: ProducerIdentity, transactional_id: str = "id") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id="readers",
    )


@VERSIONS
def test_the_partition_of_the_group_joins_the_transaction(call: Call, api: Api, version: int) -> None:
    assert call(request_of(init_producer(call)), version).error_code == Error.NONE
    found = api.transactions.find("id")
    assert found is not None
    assert found.partitions == {("__consumer_offsets", api.groups.runtime.partition_of("readers"))}
    assert "__consumer_offsets" in api.image.topics


@VERSIONS
def test_a_fenced_producer_gets_an_error_that_its_version_knows(call: Call, version: int) -> None:
    zombie = init_producer(call)
    init_producer(call)
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    assert call(request_of(zombie), version).error_code == fenced


@VERSIONS
def test_an_unknown_id_is_refused(call: Call, version: int) -> None:
    response = call(request_of(init_producer(call), "unknown"), version)
    assert response.error_code == Error.INVALID_PRODUCER_ID_MAPPING
