"""Produce of batches that take long to inspect: appended later, and otherwise like any other."""

import inspect
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from millrace.api import produce
from millrace.errors import Error
from millrace.net.connection import CloseConnection
from millrace.wire.compression import Codec
from millrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millrace.wire.records import TRANSACTIONAL_BIT, Record, build_batch, iterate_records

from ..node import create_topic, delete_topic, finish
from .api import Api
from .conftest import Call
from .transactions import begin, init_producer

VERSION = 9
MANY = 5000


def batch(count: int, *, key: bytes | None = b"key", value: bytes = b"v", **options: int) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch((Record(number, now_ms, key, value) for number in range(count)), **options)


def to(
    *batches: tuple[str, bytes | bytearray], acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(content))]
        )
        for topic, content in batches
    ]
    return ProduceRequest(acks=acks, transactional_id=transactional_id, topic_data=topics)


def begun(api: Api, request: ProduceRequest) -> Coroutine[Any, Any, ProduceResponse | None]:
    api.api_version = VERSION
    unfinished = produce.handle(api.context(), request)
    assert inspect.iscoroutine(unfinished)
    return unfinished


def finished(
    api: Api, unfinished: Coroutine[Any, Any, ProduceResponse | None]
) -> list[PartitionProduceResponse]:
    response = api.loop.run_until_complete(unfinished)
    assert response is not None
    return [partition for topic in response.responses for partition in topic.partition_responses]


def end_offset(api: Api, topic: str) -> int:
    return api.partitions.leader(topic, 0).log.log_end_offset


@pytest.fixture(autouse=True)
def topics(api: Api) -> None:
    create_topic(api, "orders", 1)
    create_topic(api, "table", 1, configs={"cleanup.policy": "compact"})


def test_a_small_batch_is_appended_at_once(api: Api) -> None:
    api.api_version = VERSION
    response = produce.handle(api.context(), to(("table", batch(100))))
    assert isinstance(response, ProduceResponse)
    assert end_offset(api, "table") == 100


def test_a_large_batch_is_appended_once_it_is_inspected(api: Api) -> None:
    unfinished = begun(api, to(("table", batch(MANY, codec=Codec.ZSTD))))
    assert end_offset(api, "table") == 0
    (response,) = finished(api, unfinished)
    assert (response.error_code, response.base_offset) == (Error.NONE, 0)
    assert end_offset(api, "table") == MANY


def test_others_in_the_request_are_appended_at_once_and_each_gets_its_response(api: Api) -> None:
    request = to(("table", batch(MANY)), ("orders", batch(3)), ("table", batch(2, key=None)), ("none", b""))
    unfinished = begun(api, request)
    assert (end_offset(api, "table"), end_offset(api, "orders")) == (0, 3)
    responses = finished(api, unfinished)
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (Error.NONE, 0),
        (Error.NONE, 0),
        (Error.INVALID_RECORD, -1),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [error.batch_index for error in responses[2].record_errors] == [0, 1]


def test_batches_for_one_partition_keep_their_order(api: Api) -> None:
    request = to(*(("table", batch(count)) for count in (MANY, 1, MANY + 1, 2)))
    offsets = [response.base_offset for response in finished(api, begun(api, request))]
    assert offsets == [0, MANY, MANY + 1, 2 * MANY + 2]


def test_records_are_stored_as_sent_though_their_memory_was_reused(api: Api) -> None:
    memory = bytearray(batch(MANY, value=b"sent"))
    unfinished = begun(api, to(("table", memory)))
    memory[:] = bytes(len(memory))
    # Nothing holds on to it: it can even change its size.
    memory.clear()
    finished(api, unfinished)
    piece = api.partitions.leader("table", 0).log.read(0, 1, min_one_batch=True)
    assert piece is not None
    assert {record.value for record in iterate_records(piece.read())} == {b"sent"}


def test_without_acks_there_is_no_response(api: Api) -> None:
    assert api.loop.run_until_complete(begun(api, to(("table", batch(MANY)), acks=0))) is None
    assert end_offset(api, "table") == MANY


def test_without_acks_a_refusal_closes_the_connection(api: Api) -> None:
    with pytest.raises(CloseConnection, match="table-0"):
        api.loop.run_until_complete(begun(api, to(("table", batch(MANY, key=None)), acks=0)))


def test_a_topic_deleted_meanwhile_is_unknown(api: Api) -> None:
    unfinished = begun(api, to(("table", batch(MANY))))
    delete_topic(api, api.metadata.image.topics["table"])
    (response,) = finished(api, unfinished)
    assert response.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"cleanup.policy": "delete"}, Error.NONE),
        ({"cleanup.policy": "compact", "compression.type": "gzip"}, Error.NONE),
        ({"cleanup.policy": "compact", "max.message.bytes": "100"}, Error.MESSAGE_TOO_LARGE),
        ({"cleanup.policy": "compact", "message.timestamp.before.max.ms": "0"}, Error.INVALID_TIMESTAMP),
    ],
    ids=str,
)
def test_a_configuration_changed_meanwhile_counts(api: Api, configs: dict[str, str], error: Error) -> None:
    record = (Record(number, 1_700_000_000_000, b"key", b"") for number in range(MANY))
    unfinished = begun(api, to(("table", build_batch(record))))
    finish(api.metadata.set_topic_configs("table", configs))
    (response,) = finished(api, unfinished)
    assert response.error_code == error
    assert end_offset(api, "table") == (0 if error else MANY)


def test_a_repeated_batch_of_an_idempotent_producer_gets_its_first_offset(api: Api) -> None:
    def numbered(sequence: int, count: int) -> bytes:
        return batch(count, producer_id=7, producer_epoch=0, base_sequence=sequence)

    for sequence, count, offset in ((0, MANY, 0), (MANY, 1, MANY), (0, MANY, 0), (MANY + 1, MANY, MANY + 1)):
        api.api_version = VERSION
        answer = produce.handle(api.context(), to(("table", numbered(sequence, count))))
        response = answer if isinstance(answer, ProduceResponse) else api.loop.run_until_complete(answer)
        assert response.responses[0].partition_responses[0].base_offset == offset


def test_a_transactions_first_batch_is_verified(api: Api, call: Call) -> None:
    producer = init_producer(call)

    def send() -> PartitionProduceResponse:
        content = batch(
            MANY,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            attributes=TRANSACTIONAL_BIT,
        )
        request = to(("table", content), transactional_id="id")
        return call(request, VERSION).responses[0].partition_responses[0]

    assert send().error_code == Error.INVALID_TXN_STATE
    begin(call, producer, "table")
    assert send().error_code == Error.NONE
    assert api.partitions.leader("table", 0).last_stable_offset == 0
