"""Fetch: what is read, within which limits, and when an empty-handed fetch is answered."""

import os

import pytest

from millrace.api import fetch, produce
from millrace.clock import Clock
from millrace.errors import Error
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.records import iterate_batches, iterate_records

from ..node import create_topic, delete_topic
from ..records import batch
from .api import Api
from .conftest import Call
from .parked_fetch import ParkedFetch

ONE_MB = 1 << 20


def of(*partitions: tuple[int, int], topic: str = "orders", **limits: int) -> FetchRequest:
    """A fetch of (index, offset) pairs that does not wait."""
    max_bytes = limits.pop("partition_max_bytes", ONE_MB)
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in partitions
    ]
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=asked)], **limits)


def values(data: PartitionData) -> list[bytes | None]:
    content = data.records.read() if hasattr(data.records, "read") else bytes(data.records)
    return [record.value for _, found in iterate_batches(content) for record in iterate_records(found)]


def only(response: FetchResponse) -> PartitionData:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(Clock().now_ms())


@pytest.fixture
def timers(clock: ManualClock) -> ManualTimers:
    return ManualTimers(clock)


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 3)


def put(api: Api, *content: bytes, index: int = 0) -> None:
    api.partitions.leader("orders", index).append_as_leader(memoryview(batch(*content)))


@pytest.mark.parametrize("version", range(4, 13))
def test_records_come_from_the_offset_on(call: Call, api: Api, version: int) -> None:
    for value in (b"a", b"b", b"c"):
        put(api, value)
    data = only(call(of((0, 1)), version))
    assert values(data) == [b"b", b"c"]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)


def test_from_version_13_topics_go_by_id(call: Call, api: Api) -> None:
    put(api, b"a")
    request = of((0, 0), topic="")
    request.topics[0].topic_id = api.image.topics["orders"].topic_id
    assert values(only(call(request, 17))) == [b"a"]
    request.topics[0].topic_id = b"nobody has this."
    assert only(call(request, 17)).error_code == Error.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 4, 1_000_000])
def test_an_offset_outside_the_log_is_an_error(call: Call, api: Api, offset: int) -> None:
    put(api, b"a", b"b", b"c")
    assert (
        only(call(of((0, offset), max_wait_ms=60_000, min_bytes=1), 11)).error_code
        == Error.OFFSET_OUT_OF_RANGE
    )


def test_an_unknown_partition_is_an_error_and_the_others_are_read(call: Call, api: Api) -> None:
    put(api, b"a")
    (topic,) = call(of((9, 0), (0, 0)), 11).responses
    assert [data.error_code for data in topic.partitions] == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NONE]
    assert values(topic.partitions[1]) == [b"a"]


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, Error.NONE), (0, Error.NONE), (5, Error.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_that_a_client_names_must_be_right(
    call: Call, api: Api, epoch: int, error: Error
) -> None:
    put(api, b"a")
    request = of((0, 0))
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert only(call(request, 11)).error_code == error


def test_one_batch_is_sent_however_small_the_limits(call: Call, api: Api) -> None:
    for index in (0, 1):
        put(api, b"x" * 5000, index=index)
        put(api, b"y", index=index)
    (topic,) = call(of((0, 0), (1, 0), partition_max_bytes=10), 11).responses
    assert [len(values(data)) for data in topic.partitions] == [1, 0]
    (topic,) = call(of((0, 0), (1, 0), max_bytes=1), 11).responses
    assert [len(values(data)) for data in topic.partitions] == [1, 0]


def test_the_whole_answer_stays_within_max_bytes(call: Call, api: Api) -> None:
    for index in range(3):
        put(api, b"x" * 1000, index=index)
    size = len(only(call(of((0, 0)), 11)).records)
    (topic,) = call(of((0, 0), (1, 0), (2, 0), max_bytes=2 * size + 10), 11).responses
    assert [bool(data.records) for data in topic.partitions] == [True, True, False]


def test_aborted_transactions_are_listed_only_for_read_committed(call: Call, api: Api) -> None:
    put(api, b"a")
    assert only(call(of((0, 0)), 11)).aborted_transactions is None
    assert only(call(of((0, 0), isolation_level=1), 11)).aborted_transactions == []


def test_a_client_ahead_of_the_log_learns_where_it_diverges(call: Call, api: Api) -> None:
    put(api, b"a", b"b")
    request = of((0, 7))
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = only(call(request, 12))
    assert data.error_code == Error.NONE
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)


def test_an_append_answers_a_waiting_fetch(api: Api) -> None:
    waiting = ParkedFetch(api, of((0, 0), (1, 0), max_wait_ms=60_000, min_bytes=1))
    assert waiting.responses() == []
    put(api, b"news", index=1)
    (answer,) = waiting.responses()
    assert [values(data) for data in answer.responses[0].partitions] == [[], [b"news"]]
    assert not api.partitions.leader("orders", 0).parked


def test_a_producer_answers_one_waiting_fetch_before_it_is_answered_itself(api: Api) -> None:
    first, second = (ParkedFetch(api, of((0, 0), max_wait_ms=60_000, min_bytes=1)) for _ in range(2))
    news = PartitionProduceData(index=0, records=memoryview(batch(b"news")))
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="orders", partition_data=[news])])
    produce.handle(api.context(), request)
    assert sorted(len(waiting.received) for waiting in (first, second)) == [0, 1]
    for waiting in (first, second):
        (answer,) = waiting.responses()
        assert values(only(answer)) == [b"news"]


def test_a_waiting_fetch_is_answered_only_when_min_bytes_have_come(api: Api) -> None:
    waiting = ParkedFetch(api, of((0, 0), max_wait_ms=60_000, min_bytes=250))
    put(api, b"x" * 50)
    assert waiting.responses() == []
    put(api, b"x" * 50)
    assert waiting.responses() == []
    put(api, b"x" * 50)
    (answer,) = waiting.responses()
    assert len(values(only(answer))) == 3


def test_a_waiting_fetch_is_answered_empty_when_its_time_is_over(api: Api) -> None:
    waiting = ParkedFetch(api, of((0, 0), max_wait_ms=20, min_bytes=1))
    assert waiting.responses(after_ms=19) == []
    (answer,) = waiting.responses(after_ms=1)
    assert values(only(answer)) == []
    assert not api.partitions.leader("orders", 0).parked


def test_deleting_the_topic_answers_a_waiting_fetch(api: Api) -> None:
    waiting = ParkedFetch(api, of((0, 0), max_wait_ms=60_000, min_bytes=1))
    delete_topic(api, api.image.topics["orders"])
    (answer,) = waiting.responses()
    assert only(answer).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_leaves_takes_its_waiting_fetch_along(api: Api) -> None:
    waiting = ParkedFetch(api, of((0, 0), max_wait_ms=60_000, min_bytes=1))
    waiting.deferred.cancel()
    assert not api.partitions.leader("orders", 0).parked
    put(api, b"news")
    assert waiting.responses() == []


def test_the_rest_of_a_sealed_segment_does_not_wait_for_more(call: Call, api: Api) -> None:
    put(api, b"old")
    api.partitions.leader("orders", 0).log.roll()
    waiting = ParkedFetch(api, of((0, 0), max_wait_ms=60_000, min_bytes=10_000))
    waiting.deferred.cancel()
    put(api, b"new")
    # What follows is in the next segment, and no append will tell of it.
    assert values(only(call(of((0, 0), max_wait_ms=60_000, min_bytes=10_000), 11))) == [b"old"]
    ParkedFetch(api, of((0, 1), max_wait_ms=60_000, min_bytes=10_000)).deferred.cancel()


def test_no_more_is_waited_for_than_one_answer_carries(call: Call, api: Api) -> None:
    api.config.fetch_max_bytes = 1024
    put(api, b"x" * 2000)
    answer = call(of((0, 0), max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1 << 20), 11)
    assert len(values(only(answer))) == 1


def test_few_records_are_copied_and_more_are_sent_from_the_file(call: Call, api: Api) -> None:
    size = fetch.COPIED_BYTES // 2
    for index in range(3):
        put(api, b"x" * (size - 100), index=index)
    (topic,) = call(of((0, 0), (1, 0), (2, 0)), 11).responses
    assert [isinstance(data.records, bytes) for data in topic.partitions] == [True, True, False]
    assert [values(data) for data in topic.partitions] == [[b"x" * (size - 100)]] * 3


def test_a_segment_that_has_become_shorter_is_a_storage_error(call: Call, api: Api) -> None:
    put(api, b"there")
    put(api, b"gone")
    segment = api.partitions.leader("orders", 0).log.segments[0]
    os.truncate(segment.path(".log"), segment.size - 1)
    answer = only(call(of((0, 0)), 11))
    assert answer.error_code == Error.KAFKA_STORAGE_ERROR
    assert not answer.records


def test_topics_in_zstandard_need_a_version_that_knows_it(call: Call, api: Api) -> None:
    create_topic(api, "dense", 1, configs={"compression.type": "zstd"})
    api.partitions.leader("dense", 0).append_as_leader(memoryview(batch(b"a")))
    refused = only(call(of((0, 0), topic="dense"), 9))
    assert (refused.error_code, refused.records) == (Error.UNSUPPORTED_COMPRESSION_TYPE, b"")
    assert values(only(call(of((0, 0), topic="dense"), 10))) == [b"a"]


def test_of_a_partition_that_is_named_twice_the_last_counts(call: Call, api: Api) -> None:
    put(api, b"a")
    put(api, b"b")
    assert values(only(call(of((0, 0), (0, 1), session_epoch=-1), 12))) == [b"b"]
