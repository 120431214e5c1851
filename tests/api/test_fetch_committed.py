"""Fetch and ListOffsets for read_committed: up to the last stable offset, with the aborted transactions."""

import time

import pytest

from millrace.clock import Clock
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace.wire.records import iterate_batches, iterate_records

from ..node import create_topic
from ..records import batch
from ..transactional import transactional_batch
from .api import Api
from .conftest import Call
from .parked_fetch import ParkedFetch

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(Clock().now_ms())


@pytest.fixture
def timers(clock: ManualClock) -> ManualTimers:
    return ManualTimers(clock)


@pytest.fixture
def orders(api: Api) -> Partition:
    create_topic(api, "orders", 1)
    return api.partitions.leader("orders", 0)


def send(partition: Partition, value: bytes, *, producer_id: int = 1, sequence: int = 0) -> None:
    now_ms = int(time.time() * 1000)
    records = transactional_batch([value], now_ms, producer_id=producer_id, sequence=sequence)
    partition.append_as_leader(records, AppendOrigin.TRANSACTION)


def request(offset: int = 0, *, isolation: int = READ_COMMITTED, **limits: int) -> FetchRequest:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=limits.pop("partition_max_bytes", 1 << 20)
    )
    return FetchRequest(
        isolation_level=isolation, topics=[FetchTopic(topic="orders", partitions=[asked])], **limits
    )


def only(response: FetchResponse) -> PartitionData:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def values(data: PartitionData) -> list[bytes | None]:
    content = data.records.read() if hasattr(data.records, "read") else bytes(data.records or b"")
    return [
        record.value
        for header, found in iterate_batches(content)
        if not header.is_control
        for record in iterate_records(found)
    ]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions]


@pytest.mark.parametrize("version", range(4, 13))
def test_nothing_past_the_last_stable_offset_is_read(call: Call, orders: Partition, version: int) -> None:
    orders.append_as_leader(memoryview(batch(b"plain")))
    send(orders, b"open")
    orders.append_as_leader(memoryview(batch(b"behind")))
    data = only(call(request(), version))
    assert values(data) == [b"plain"]
    assert (data.high_watermark, data.last_stable_offset) == (3, 1)
    everything = only(call(request(isolation=READ_UNCOMMITTED), version))
    assert values(everything) == [b"plain", b"open", b"behind"]
    assert everything.aborted_transactions is None


def test_an_offset_between_the_stable_part_and_the_end_is_empty_and_no_error(
    call: Call, orders: Partition
) -> None:
    send(orders, b"a")
    send(orders, b"b", sequence=1)
    for offset in (0, 1, 2):
        data = only(call(request(offset), 11))
        assert (data.error_code, values(data), aborted(data)) == (0, [], [])


def test_aborted_transactions_come_with_the_records_they_concern(call: Call, orders: Partition) -> None:
    send(orders, b"a")
    send(orders, b"b", producer_id=2)
    orders.write_marker(1, 0, False, 0)
    orders.write_marker(2, 0, True, 0)
    send(orders, b"c", sequence=1)
    orders.write_marker(1, 0, False, 0)
    assert aborted(only(call(request(), 11))) == [(1, 0), (1, 4)]
    assert aborted(only(call(request(partition_max_bytes=1), 11))) == [(1, 0)]
    assert aborted(only(call(request(3, partition_max_bytes=1), 11))) == []
    assert aborted(only(call(request(4, partition_max_bytes=1), 11))) == [(1, 4)]


def test_a_commit_answers_a_waiting_fetch(api: Api, orders: Partition) -> None:
    send(orders, b"a")
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=1))
    send(orders, b"b", sequence=1)
    assert waiting.responses() == []
    orders.write_marker(1, 0, True, 0)
    (answer,) = waiting.responses()
    assert values(only(answer)) == [b"a", b"b"]


def test_an_end_behind_an_open_transaction_answers_no_fetch(api: Api, orders: Partition) -> None:
    send(orders, b"a")
    send(orders, b"b", producer_id=2)
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=1))
    orders.write_marker(2, 0, True, 0)
    assert waiting.responses() == []
    orders.write_marker(1, 0, True, 0)
    (answer,) = waiting.responses()
    assert values(only(answer)) == [b"a", b"b"]


def test_a_commit_of_few_bytes_is_not_enough(api: Api, orders: Partition) -> None:
    send(orders, b"a")
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=400))
    orders.write_marker(1, 0, True, 0)
    assert waiting.responses() == []
    orders.append_as_leader(memoryview(batch(b"x" * 300)))
    (answer,) = waiting.responses()
    assert len(values(only(answer))) == 2


def test_time_runs_on_while_commits_are_not_enough(api: Api, orders: Partition) -> None:
    send(orders, b"a")
    waiting = ParkedFetch(api, request(max_wait_ms=50, min_bytes=10_000))
    assert waiting.responses(after_ms=30) == []
    orders.write_marker(1, 0, True, 0)
    assert waiting.responses(after_ms=19) == []
    (answer,) = waiting.responses(after_ms=1)
    assert values(only(answer)) == [b"a"]
    assert not orders.parked


def listed(call: Call, timestamp: int, isolation: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="orders", partitions=[asked])
    (found,) = call(ListOffsetsRequest(isolation_level=isolation, topics=[topic])).topics
    return found.partitions[0]


def test_offsets_are_listed_as_far_as_the_client_may_read(call: Call, orders: Partition) -> None:
    orders.append_as_leader(memoryview(batch(b"plain")))
    send(orders, b"open")
    assert listed(call, LATEST, READ_UNCOMMITTED).offset == 2
    assert listed(call, LATEST, READ_COMMITTED).offset == 1
    assert listed(call, 0, READ_COMMITTED).offset == 0
    later = int(time.time() * 1000) + 60_000
    assert listed(call, later, READ_COMMITTED).offset == -1


def test_a_record_in_an_open_transaction_is_not_found_by_its_time(call: Call, orders: Partition) -> None:
    send(orders, b"open")
    for timestamp in (0, MAX_TIMESTAMP):
        assert listed(call, timestamp, READ_UNCOMMITTED).offset == 0
        assert listed(call, timestamp, READ_COMMITTED).offset == -1
    orders.write_marker(1, 0, True, 0)
    assert listed(call, 0, READ_COMMITTED).offset == 0
