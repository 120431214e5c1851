"""WriteTxnMarkers: ends transactions partition by partition, each with its own answer."""

import time

import pytest

from millrace.errors import Error
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..node import create_topic
from ..transactional import read_committed, transactional_batch
from .api import Api
from .conftest import Call


@pytest.fixture(autouse=True)
def orders(api: Api) -> list[Partition]:
    create_topic(api, "orders", 2)
    partitions = [api.partitions.leader("orders", index) for index in (0, 1)]
    for partition in partitions:
        records = transactional_batch([b"a"], int(time.time() * 1000), producer_id=7, epoch=2)
        partition.append_as_leader(records, AppendOrigin.TRANSACTION)
    return partitions


def marker(*indexes: int, topic: str = "orders", **fields: object) -> WritableTxnMarker:
    options: dict[str, object] = {"producer_id": 7, "producer_epoch": 2, "transaction_result": True}
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))]
    return WritableTxnMarker(topics=topics, **(options | fields))


def outcomes(response: WriteTxnMarkersResponse) -> list[tuple[int, str, int, int]]:
    return [
        (result.producer_id, topic.name, partition.partition_index, partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_ends_the_transaction_in_every_partition(
    call: Call, orders: list[Partition], version: int, committed: bool
) -> None:
    request = WriteTxnMarkersRequest(markers=[marker(0, 1, transaction_result=committed)])
    assert outcomes(call(request, version)) == [(7, "orders", 0, 0), (7, "orders", 1, 0)]
    for partition in orders:
        assert partition.last_stable_offset == partition.high_watermark == 2
        assert [value for _, value in read_committed(partition.log)] == ([b"a"] if committed else [])


def test_each_partition_has_its_own_answer(call: Call) -> None:
    request = WriteTxnMarkersRequest(
        markers=[marker(0, 9), marker(0, topic="nothing"), marker(1, producer_epoch=1)]
    )
    assert outcomes(call(request)) == [
        (7, "orders", 0, Error.NONE),
        (7, "orders", 9, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "nothing", 0, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "orders", 1, Error.INVALID_PRODUCER_EPOCH),
    ]


def test_an_older_coordinator_is_fenced(call: Call) -> None:
    call(WriteTxnMarkersRequest(markers=[marker(0, coordinator_epoch=5)]))
    (outcome,) = outcomes(call(WriteTxnMarkersRequest(markers=[marker(0, coordinator_epoch=4)])))
    assert outcome[-1] == Error.TRANSACTION_COORDINATOR_FENCED


def test_from_version_2_on_a_marker_may_need_a_newer_epoch(call: Call) -> None:
    """With an epoch for each transaction a late marker of the last one must not end the next."""
    late = WriteTxnMarkersRequest(markers=[marker(0, transaction_version=2)])
    assert outcomes(call(late, 2))[0][-1] == Error.INVALID_PRODUCER_EPOCH
    right = WriteTxnMarkersRequest(markers=[marker(0, producer_epoch=3, transaction_version=2)])
    assert outcomes(call(right, 2))[0][-1] == Error.NONE
