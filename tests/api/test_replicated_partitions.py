"""Produce and Fetch on a partition with a follower: acks=all waits, and consumers see what is committed."""

import asyncio

import pytest

from millrace.api import fetch, produce
from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.replication.partition import Partition
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from millrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millrace.wire.records import Record, build_batch, iterate_batches, iterate_records

from ..node import create_topic
from ..records import batch
from .api import Api

ME, FOLLOWER = 0, 7
TIMEOUT_MS = 30_000
CONSUMER = -1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(Clock().now_ms())


@pytest.fixture
def timers(clock: ManualClock) -> ManualTimers:
    return ManualTimers(clock)


@pytest.fixture(autouse=True)
def partition(api: Api) -> Partition:
    """Orders, partition 0, which has a follower; partition 1 has none."""
    create_topic(api, "orders", 2)
    partition = api.partitions.leader("orders", 0)
    partition.become_leader(0, (ME, FOLLOWER), (ME, FOLLOWER), node_id=ME)
    return partition


class Sent:
    """A produce request, and its response once it is there."""

    def __init__(self, api: Api, *indexes: int, acks: int = -1) -> None:
        self._ctx = api
        self._response: ProduceResponse | None = None
        data = [
            PartitionProduceData(index=index, records=memoryview(batch(b"v"))) for index in indexes or (0,)
        ]
        api.api_version = 11
        topics = [TopicProduceData(name="orders", partition_data=data)]
        result = produce.handle(
            api.context(), ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics)
        )
        if isinstance(result, Deferred):
            self.deferred = result
            result.then(self._receive)
        else:
            assert isinstance(result, ProduceResponse)
            self._receive(result)

    def _receive(self, response: ProduceResponse) -> None:
        self._response = response

    @property
    def outcome(self) -> list[tuple[int, int]] | None:
        """Error and offset of each partition; None while there is no response."""
        self._ctx.loop.run_until_complete(asyncio.sleep(0))
        if self._response is None:
            return None
        partitions: list[PartitionProduceResponse] = self._response.responses[0].partition_responses
        return [(data.error_code, data.base_offset) for data in partitions]


def request(offset: int, replica: int = CONSUMER, **options: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica, topics=[FetchTopic(topic="orders", partitions=[asked])], **options
    )


def fetched(api: Api, offset: int, replica: int = CONSUMER) -> PartitionData:
    """The response of a fetch that does not wait."""
    api.api_version = 11
    response = fetch.handle(api.context(), request(offset, replica))
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for _, found in iterate_batches(data.records) for record in iterate_records(found)]


# Produce


def test_acks_all_waits_until_the_follower_has_the_records(api: Api) -> None:
    sent = Sent(api)
    assert sent.outcome is None
    assert values(fetched(api, 0, FOLLOWER)) == [b"v"]
    assert sent.outcome is None
    assert fetched(api, 1, FOLLOWER).high_watermark == 1
    assert sent.outcome == [(Error.NONE, 0)]


def test_one_acknowledgement_is_enough_for_acks_1(api: Api) -> None:
    assert Sent(api, acks=1).outcome == [(Error.NONE, 0)]


def test_each_partition_of_a_request_has_its_own_outcome(api: Api, timers: ManualTimers) -> None:
    sent = Sent(api, 0, 1)
    timers.advance(TIMEOUT_MS)
    assert sent.outcome == [(Error.REQUEST_TIMED_OUT, -1), (Error.NONE, 0)]


def test_a_wait_that_timed_out_leaves_nothing_behind(
    api: Api, timers: ManualTimers, partition: Partition
) -> None:
    pending = len(timers)
    sent = [Sent(api) for _ in range(10)]
    timers.advance(TIMEOUT_MS)
    assert {request.outcome[0][0] for request in sent if request.outcome} == {Error.REQUEST_TIMED_OUT}
    assert len(timers) == pending
    assert not len(partition._commits)


def test_a_client_that_disconnects_leaves_nothing_behind(
    api: Api, timers: ManualTimers, partition: Partition
) -> None:
    pending = len(timers)
    Sent(api).deferred.cancel()
    assert len(timers) == pending
    assert not len(partition._commits)


def test_a_leader_that_resigns_says_so(api: Api, partition: Partition) -> None:
    sent = Sent(api)
    partition.become_follower(1, FOLLOWER)
    assert sent.outcome == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]


def test_acks_all_is_refused_while_too_few_replicas_are_in_sync(api: Api, partition: Partition) -> None:
    partition.reconfigure(LogConfig(min_insync_replicas=2))
    partition.become_leader(0, (ME, FOLLOWER), (ME,), node_id=ME)
    assert Sent(api).outcome == [(Error.NOT_ENOUGH_REPLICAS, -1)]
    assert partition.log.log_end_offset == 0
    assert Sent(api, acks=1).outcome == [(Error.NONE, 0)]


def test_a_repeated_batch_waits_as_its_first_copy_does(api: Api) -> None:
    record = Record(0, api.clock.now_ms(), None, b"v")
    content = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0)
    api.api_version = 11
    waiting = []
    for _ in range(2):
        data = PartitionProduceData(index=0, records=memoryview(content))
        topics = [TopicProduceData(name="orders", partition_data=[data])]
        result = produce.handle(
            api.context(), ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        )
        assert isinstance(result, Deferred)
        waiting.append(result)
    fetched(api, 1, FOLLOWER)
    api.loop.run_until_complete(asyncio.sleep(0))
    assert [result.result().responses[0].partition_responses[0].base_offset for result in waiting] == [0, 0]


# Fetch


def test_consumers_see_committed_records_only(api: Api) -> None:
    Sent(api, acks=1)
    data = fetched(api, 0)
    assert (values(data), data.high_watermark, data.error_code) == ([], 0, Error.NONE)
    assert fetched(api, 1).error_code == Error.NONE, "the offset exists"
    assert fetched(api, 2).error_code == Error.OFFSET_OUT_OF_RANGE
    fetched(api, 1, FOLLOWER)
    assert values(fetched(api, 0)) == [b"v"]


def test_a_consumer_that_waits_is_answered_when_records_are_committed(api: Api) -> None:
    api.api_version = 11
    result = fetch.handle(api.context(), request(0, max_wait_ms=60_000, min_bytes=1))
    assert isinstance(result, Deferred)
    received: list[FetchResponse] = []
    result.then(received.append)
    Sent(api, acks=1)
    api.loop.run_until_complete(asyncio.sleep(0))
    assert not received
    fetched(api, 1, FOLLOWER)
    api.loop.run_until_complete(asyncio.sleep(0))
    assert values(received[0].responses[0].partitions[0]) == [b"v"]


def test_a_follower_that_waits_is_answered_when_records_are_appended(api: Api) -> None:
    api.api_version = 11
    result = fetch.handle(api.context(), request(0, FOLLOWER, max_wait_ms=60_000, min_bytes=1))
    assert isinstance(result, Deferred)
    received: list[FetchResponse] = []
    result.then(received.append)
    Sent(api, acks=1)
    api.loop.run_until_complete(asyncio.sleep(0))
    data = received[0].responses[0].partitions[0]
    assert (values(data), data.high_watermark) == ([b"v"], 0)


def test_a_follower_does_not_wait_for_records_that_its_own_fetch_lets_through(
    api: Api, partition: Partition
) -> None:
    """A coordinator appends when something is committed, and the fetch that commits it is not parked yet."""
    Sent(api)
    partition.committed(1).then(lambda _: partition.append_as_leader(memoryview(batch(b"next"))))
    api.api_version = 11
    response = fetch.handle(api.context(), request(1, FOLLOWER, max_wait_ms=500, min_bytes=1))
    # It is answered at once, and the next fetch finds the record.
    assert isinstance(response, FetchResponse)
    assert values(fetched(api, 1, FOLLOWER)) == [b"next"]


def test_followers_name_themselves_in_a_tagged_field_from_version_15_on(
    api: Api, partition: Partition
) -> None:
    Sent(api, acks=1)
    asked = request(1)
    asked.replica_state = ReplicaState(replica_id=FOLLOWER, replica_epoch=1)
    asked.topics[0].topic_id = api.image.topics["orders"].topic_id
    api.api_version = 17
    fetch.handle(api.context(), asked)
    assert partition.high_watermark == 1


def test_a_broker_without_a_replica_is_refused(api: Api) -> None:
    assert fetched(api, 0, replica=9).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_whose_log_is_longer_does_not_commit_anything(api: Api, partition: Partition) -> None:
    Sent(api, acks=1)
    assert fetched(api, 5, FOLLOWER).error_code == Error.OFFSET_OUT_OF_RANGE
    assert partition.high_watermark == 0
