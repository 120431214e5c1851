"""Requests that tests of the transactional APIs share."""

from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from millrace.wire.messages.init_producer_id import InitProducerIdRequest

from .conftest import Call

TIMEOUT_MS = 60_000


def init_producer(call: Call, transactional_id: str = "id") -> ProducerIdentity:
    response = call(
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    )
    assert response.error_code == 0
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def begin(call: Call, producer: ProducerIdentity, topic: str, transactional_id: str = "id") -> None:
    """Open a transaction on a topic's first partition."""
    response = call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        ),
        version=3,
    )
    (result,) = response.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == 0
