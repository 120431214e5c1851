"""DescribeProducers: every producer of a partition, with its open transaction."""

import time

from millrace.errors import Error
from millrace.storage.append_origin import AppendOrigin
from millrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from millrace.wire.records import Record, build_batch

from ..node import create_topic
from ..transactional import transactional_batch
from .api import Api
from .conftest import Call


def test_producers_are_described(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    partition = api.partitions.leader("orders", 0)
    now_ms = int(time.time() * 1000)
    idempotent = build_batch(
        [Record(number, now_ms, None, b"v") for number in range(3)],
        producer_id=4,
        producer_epoch=1,
        base_sequence=10,
    )
    partition.append_as_leader(memoryview(idempotent))
    partition.append_as_leader(
        transactional_batch([b"a"], now_ms, producer_id=5, epoch=2), AppendOrigin.TRANSACTION
    )
    partition.write_marker(6, 3, True, coordinator_epoch=8)

    (topic,) = call(DescribeProducersRequest(topics=[TopicRequest("orders", [0])])).topics
    (described,) = topic.partitions
    assert described.error_code == Error.NONE
    assert [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in described.active_producers
    ] == [(4, 1, 12, -1, -1), (5, 2, 0, -1, 3), (6, 3, -1, 8, -1)]
    assert all(
        now_ms <= producer.last_timestamp <= now_ms + 60_000 for producer in described.active_producers
    )


def test_an_unknown_partition_is_an_error_of_its_own(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    response = call(
        DescribeProducersRequest(topics=[TopicRequest("orders", [0, 1]), TopicRequest("none", [0])])
    )
    assert [partition.error_code for topic in response.topics for partition in topic.partitions] == [
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
