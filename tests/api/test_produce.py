"""Produce: what is appended, what is refused, and how each is answered."""

import inspect
import time

import pytest

from millrace.api import produce
from millrace.errors import Error
from millrace.net.replies import CloseConnection
from millrace.wire.compression import Codec
from millrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from millrace.wire.records import Record, build_batch

from ..node import create_topic
from ..records import batch
from .api import Api
from .conftest import Call


def to_orders(
    records: bytes | None, *, acks: int = 1, topic: str = "orders", index: int = 0
) -> ProduceRequest:
    view = None if records is None else memoryview(records)
    data = PartitionProduceData(index=index, records=view)
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def only(response: object) -> PartitionProduceResponse:
    (topic,) = response.responses  # type: ignore[attr-defined]
    (partition,) = topic.partition_responses
    return partition


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 2)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 13))
def test_batches_get_the_next_offsets(call: Call, acks: int, version: int) -> None:
    first = only(call(to_orders(batch(b"a", b"b", b"c"), acks=acks), version))
    second = only(call(to_orders(batch(b"d"), acks=acks), version))
    assert (first.error_code, first.base_offset) == (Error.NONE, 0)
    assert (second.error_code, second.base_offset, second.log_append_time_ms) == (Error.NONE, 3, -1)


def test_from_version_13_topics_go_by_id(call: Call, api: Api) -> None:
    request = to_orders(batch(b"a"), topic="")
    request.topic_data[0].topic_id = api.image.topics["orders"].topic_id
    response = call(request, 13)
    assert only(response).error_code == Error.NONE
    assert response.responses[0].topic_id == request.topic_data[0].topic_id
    request.topic_data[0].topic_id = b"nobody has this."
    assert only(call(request, 13)).error_code == Error.UNKNOWN_TOPIC_ID


def test_each_partition_has_its_own_answer(call: Call) -> None:
    request = to_orders(batch(b"a"))
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=memoryview(batch(b"b"))),
        PartitionProduceData(index=9, records=memoryview(batch(b"c"))),
    ]
    (topic,) = call(request, 9).responses
    assert [(answer.index, answer.error_code) for answer in topic.partition_responses] == [
        (0, Error.NONE),
        (1, Error.NONE),
        (9, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_write_nothing(call: Call, api: Api, acks: int) -> None:
    assert only(call(to_orders(batch(b"a"), acks=acks), 9)).error_code == Error.INVALID_REQUIRED_ACKS
    assert api.partitions.leader("orders", 0).log.log_end_offset == 0


def test_without_acks_there_is_no_answer(call: Call, api: Api) -> None:
    assert call(to_orders(batch(b"a"), acks=0), 9) is None
    assert api.partitions.leader("orders", 0).log.log_end_offset == 1


def test_without_acks_a_failure_closes_the_connection(call: Call) -> None:
    with pytest.raises(CloseConnection, match="orders-9"):
        call(to_orders(batch(b"a"), acks=0, index=9), 9)


def test_clients_do_not_write_to_internal_topics(call: Call, api: Api) -> None:
    create_topic(api, "__consumer_offsets", 1)
    request = to_orders(batch(b"a"), topic="__consumer_offsets")
    assert only(call(request, 9)).error_code == Error.INVALID_TOPIC_EXCEPTION
    assert api.partitions.leader("__consumer_offsets", 0).log.log_end_offset == 0
    api.client_id = "__admin_client"
    assert only(call(request, 9)).error_code == Error.NONE


def test_acks_all_asks_for_no_more_replicas_than_there_are(call: Call, api: Api) -> None:
    create_topic(api, "precious", 1, configs={"min.insync.replicas": "2"})
    for acks in (-1, 1):
        assert only(call(to_orders(batch(b"a"), acks=acks, topic="precious"), 9)).error_code == Error.NONE


def test_a_record_without_a_key_is_named_where_the_topic_is_compacted(call: Call, api: Api) -> None:
    create_topic(api, "latest", 1, configs={"cleanup.policy": "compact"})
    records = [
        Record(offset=n, timestamp=1, key=key, value=b"v", headers=())
        for n, key in enumerate([b"k", None, b"k", None])
    ]
    refused = only(call(to_orders(build_batch(records), topic="latest"), 9))
    assert refused.error_code == Error.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert api.partitions.leader("latest", 0).log.log_end_offset == 0


def test_a_corrupt_batch_is_refused(call: Call) -> None:
    damaged = bytearray(batch(b"some value"))
    damaged[-3] ^= 1
    assert only(call(to_orders(bytes(damaged)), 9)).error_code == Error.CORRUPT_MESSAGE


def test_no_records_at_all_are_refused(call: Call) -> None:
    assert only(call(to_orders(None), 9)).error_code == Error.INVALID_RECORD


def test_a_repeated_batch_of_an_idempotent_producer_gets_its_first_offset(call: Call, api: Api) -> None:
    def numbered(sequence: int) -> bytes:
        record = Record(offset=0, timestamp=1, key=None, value=b"v", headers=())
        return build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)

    offsets = [only(call(to_orders(numbered(sequence)), 9)).base_offset for sequence in (0, 1, 2, 1, 2, 3)]
    assert offsets == [0, 1, 2, 1, 2, 3]
    assert only(call(to_orders(numbered(9)), 9)).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert api.partitions.leader("orders", 0).log.log_end_offset == 4


def test_flush_messages_makes_the_answer_wait_for_the_disk(api: Api) -> None:
    create_topic(api, "safe", 1, configs={"flush.messages": "2"})
    log = api.partitions.leader("safe", 0).log
    api.api_version = 9
    assert not inspect.iscoroutine(produce.handle(api.context(), to_orders(batch(b"a"), topic="safe")))
    assert log.recovery_point == 0
    waiting = produce.handle(api.context(), to_orders(batch(b"b"), topic="safe"))
    assert inspect.iscoroutine(waiting)
    assert only(api.loop.run_until_complete(waiting)).base_offset == 1
    assert log.recovery_point == 2


def test_zstandard_needs_a_version_that_knows_it(call: Call) -> None:
    records = [Record(offset=0, timestamp=int(time.time() * 1000), key=None, value=b"a")]
    compressed = build_batch(records, codec=Codec.ZSTD)
    assert only(call(to_orders(compressed), 6)).error_code == Error.UNSUPPORTED_COMPRESSION_TYPE
    accepted = only(call(to_orders(compressed), 7))
    assert (accepted.error_code, accepted.base_offset) == (Error.NONE, 0)
