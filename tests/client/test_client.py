"""A client of a cluster: it finds the responsible broker, and follows it when it moves."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import pytest

from millrace.client import (
    BrokerUnreachable,
    Client,
    Connection,
    ConnectionLost,
    CoordinatorType,
    Outcomes,
    TopicPartition,
    UnknownBroker,
)
from millrace.client.routing import LONGEST_PAUSE_SECONDS
from millrace.errors import Error, KafkaError
from millrace.testing import Broker, ManualClock, free_port
from millrace.testing.timers import ManualTimers
from millrace.wire.messages import list_offsets as offsets_api
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from millrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.schema import Request, Response

from .fake_cluster import FakeCluster, Hangup

T = TypeVar("T")

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster().running(brokers=3) as cluster:
        cluster.leaders = {ORDERS: 1, PAYMENTS: 2}
        cluster.coordinators = {"billing": 2, "audit": 3}
        yield cluster


@asynccontextmanager
async def connected(cluster: FakeCluster, timeout_seconds: float = 30) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap, timeout_seconds=timeout_seconds) as client:
        yield client


async def finished_late(work: Callable[[Client], Awaitable[T]], cluster: FakeCluster) -> T:
    """The result of work that is tried again until the client's time is up."""
    clock = ManualClock()
    timers = ManualTimers(clock)
    async with Client(cluster.bootstrap, timeout_seconds=5, clock=clock, timers=timers) as client:
        result = asyncio.ensure_future(work(client))
        while not result.done():
            # Time passes during pauses, not while a request is under way.
            if timers.next_delay_ms <= 1000 * LONGEST_PAUSE_SECONDS:
                timers.advance(math.ceil(timers.next_delay_ms))
            await asyncio.sleep(0.001)
        return result.result()


async def end_offsets(
    connection: Connection, partitions: list[TopicPartition]
) -> Outcomes[TopicPartition, int]:
    """The offset that a fake broker returns is its own id."""
    request = offsets_api.ListOffsetsRequest(
        topics=[
            offsets_api.ListOffsetsTopic(name, [offsets_api.ListOffsetsPartition(index)])
            for name, index in partitions
        ]
    )
    outcomes: Outcomes[TopicPartition, int] = Outcomes()
    response = await connection.send(request, offsets_api.ListOffsetsResponse)
    for topic in response.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            outcomes.add(key, partition.offset, partition.error_code)
    return outcomes


async def delete_groups(connection: Connection, groups: list[str]) -> Outcomes[str, str]:
    """The value of a group is its coordinator's address."""
    outcomes: Outcomes[str, str] = Outcomes()
    response = await connection.send(DeleteGroupsRequest(groups_names=groups), DeleteGroupsResponse)
    for result in response.results:
        outcomes.add(result.group_id, str(connection.address), result.error_code)
    return outcomes


async def create_topics(connection: Connection, names: list[str]) -> Outcomes[str, str]:
    outcomes: Outcomes[str, str] = Outcomes()
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in names])
    for result in (await connection.send(request, CreateTopicsResponse)).topics:
        outcomes.add(result.name, str(connection.address), result.error_code)
    return outcomes


async def test_partitions_are_asked_of_their_leaders(cluster: FakeCluster) -> None:
    async with connected(cluster) as client:
        found = await client.call_leaders([PAYMENTS, ORDERS], end_offsets)
        assert list(found.all().items()) == [(PAYMENTS, 2), (ORDERS, 1)]
        await client.call_leaders([PAYMENTS, ORDERS], end_offsets)
    assert cluster.count("ListOffsets") == 4
    assert cluster.count("Metadata") == 1


async def test_a_moved_leader_is_followed(cluster: FakeCluster) -> None:
    async with connected(cluster) as client:
        await client.call_leaders([PAYMENTS, ORDERS], end_offsets)
        cluster.leaders[PAYMENTS] = 3
        cluster.requests.clear()
        found = await client.call_leaders([PAYMENTS, ORDERS], end_offsets)
    assert found.all() == {PAYMENTS: 3, ORDERS: 1}
    assert cluster.requests[1, "ListOffsets"] == 1, "what succeeded is not sent again"


async def test_an_unknown_partition_fails_at_once_and_the_others_succeed(cluster: FakeCluster) -> None:
    absent, beyond = TopicPartition("absent", 0), TopicPartition("orders", 7)
    async with connected(cluster, timeout_seconds=60) as client:
        found = await client.call_leaders([absent, ORDERS, beyond], end_offsets)
    assert found.succeeded == {ORDERS: 1}
    assert {key: error.message for key, error in found.failed.items()} == {
        absent: "there is no partition absent-0",
        beyond: "there is no partition orders-7",
    }
    with pytest.raises(KafkaError, match="there is no partition absent-0"):
        found.all()


async def test_a_leader_that_does_not_know_the_topic_yet_is_asked_again(cluster: FakeCluster) -> None:
    hidden = [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE]

    def is_late(node_id: int, request: Request) -> Response | None:
        if not isinstance(request, offsets_api.ListOffsetsRequest) or not hidden:
            return None
        partition = offsets_api.ListOffsetsPartitionResponse(error_code=hidden.pop(0))
        return offsets_api.ListOffsetsResponse(
            topics=[offsets_api.ListOffsetsTopicResponse(name="orders", partitions=[partition])]
        )

    cluster.on_request = is_late
    async with connected(cluster) as client:
        assert (await client.call_leaders([ORDERS], end_offsets)).all() == {ORDERS: 1}
    assert not hidden


async def test_a_partition_without_a_leader_fails_when_the_time_is_up(cluster: FakeCluster) -> None:
    cluster.leaders[ORDERS] = -1
    found = await finished_late(lambda client: client.call_leaders([ORDERS], end_offsets), cluster)
    assert found.failed[ORDERS].error is Error.LEADER_NOT_AVAILABLE
    assert found.failed[ORDERS].message == "partition orders-0 has no leader"


async def test_a_lost_connection_is_opened_again(cluster: FakeCluster) -> None:
    hangups = [Hangup()]

    def hangs_up_once(node_id: int, request: Request) -> None:
        if isinstance(request, offsets_api.ListOffsetsRequest) and hangups:
            raise hangups.pop()

    cluster.on_request = hangs_up_once
    async with connected(cluster) as client:
        assert (await client.call_leaders([ORDERS], end_offsets)).all() == {ORDERS: 1}


async def test_groups_are_asked_of_their_coordinators_and_those_are_followed(cluster: FakeCluster) -> None:
    def addresses(**node_ids: int) -> dict[str, str]:
        return {group: f"127.0.0.1:{cluster.ports[node_id]}" for group, node_id in node_ids.items()}

    async with connected(cluster) as client:
        groups = ["billing", "audit"]
        deleted = await client.call_coordinators(CoordinatorType.GROUP, groups, delete_groups)
        assert deleted.all() == addresses(billing=2, audit=3)
        cluster.coordinators["billing"] = 1
        deleted = await client.call_coordinators(CoordinatorType.GROUP, groups, delete_groups)
        assert deleted.all() == addresses(billing=1, audit=3)


async def test_older_brokers_are_asked_for_one_coordinator_at_a_time(cluster: FakeCluster) -> None:
    cluster.highest[FindCoordinatorRequest] = 3
    async with connected(cluster) as client:
        groups = ["billing", "audit"]
        deleted = await client.call_coordinators(CoordinatorType.GROUP, groups, delete_groups)
    assert list(deleted.all()) == groups
    assert cluster.count("FindCoordinator") == 2


async def test_a_coordinator_that_is_not_available_yet_is_waited_for(cluster: FakeCluster) -> None:
    deleted = await finished_late(
        lambda client: client.call_coordinators(CoordinatorType.GROUP, ["new"], delete_groups), cluster
    )
    assert deleted.failed["new"].error is Error.COORDINATOR_NOT_AVAILABLE
    assert cluster.count("FindCoordinator") > 1


async def test_the_controller_is_followed(cluster: FakeCluster) -> None:
    async with connected(cluster) as client:
        await client.call_controller(["one"], create_topics)
        cluster.controller_id = 2
        created = await client.call_controller(["two", "three"], create_topics)
    assert set(created.all().values()) == {f"127.0.0.1:{cluster.ports[2]}"}


async def test_a_change_is_not_sent_twice_if_the_first_may_have_been_handled(cluster: FakeCluster) -> None:
    def hangs_up(node_id: int, request: Request) -> None:
        if isinstance(request, CreateTopicsRequest):
            raise Hangup

    cluster.on_request = hangs_up
    async with connected(cluster) as client:
        created = await client.call_controller(["one"], create_topics)
    assert isinstance(created.failed["one"], ConnectionLost)
    assert cluster.requests[1, "CreateTopics"] == 1


async def test_a_key_that_a_response_lacks_is_an_error(cluster: FakeCluster) -> None:
    async def knows_nothing(connection: Connection, names: list[str]) -> Outcomes[str, str]:
        return Outcomes()

    async with connected(cluster) as client:
        called = await client.call_any(["orders"], knows_nothing)
    assert called.failed["orders"].error is Error.UNKNOWN_SERVER_ERROR
    assert called.failed["orders"].message.endswith("lacks orders")


async def test_every_broker_can_be_called(cluster: FakeCluster) -> None:
    async def address(connection: Connection, node_ids: Iterable[int]) -> Outcomes[int, int]:
        return Outcomes(dict.fromkeys(node_ids, connection.address.port))

    async with connected(cluster) as client:
        assert (await client.call_brokers([3, 1, 2], address)).all() == {
            node_id: cluster.ports[node_id] for node_id in (3, 1, 2)
        }
        unknown = await client.call_brokers([99], address)
        assert isinstance(unknown.failed[99], UnknownBroker)
        with pytest.raises(UnknownBroker, match="there is no broker 99; the brokers are 1, 2, 3"):
            unknown.all()


async def test_the_next_bootstrap_address_is_tried(cluster: FakeCluster) -> None:
    bootstrap = f"127.0.0.1:{free_port()},127.0.0.1:{cluster.ports[2]}"
    async with Client(bootstrap) as client:
        assert (await client.any_broker()).address.port == cluster.ports[2]


async def test_no_broker_at_all_is_an_error_at_once_with_every_reason() -> None:
    first, second = free_port(), free_port()
    async with AsyncExitStack() as stack:
        with pytest.raises(BrokerUnreachable) as failure:
            await stack.enter_async_context(Client(f"127.0.0.1:{first},127.0.0.1:{second}"))
    assert failure.value.message.count("connection refused") == 2


async def test_a_restarted_broker_is_found_again() -> None:
    with Broker() as broker:
        async with Client(broker.bootstrap, timeout_seconds=10) as client:
            before = await client.metadata()
            broker.restart()
            after = await client.metadata()
            assert (after.cluster_id, after.controller_id) == (before.cluster_id, before.controller_id)
            connection = await client.broker(after.controller_id)
            assert connection.is_open
