"""Fetch sessions: requests and responses carry changes only, and the sessions' memory is bounded."""

import pytest

from millrace.api.fetch_sessions import PARTITIONS_PER_SLOT, Fetch, FetchSessions, targets_of
from millrace.errors import Error, KafkaError
from millrace.testing import Broker
from millrace.testing.clock import ManualClock
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

from ..node import create_topic
from ..records import batch
from ..waiting import until
from ..wire_client import WireClient
from .api import Api
from .conftest import Call

VERSION = 11


def ask(session: tuple[int, int], *partitions: tuple[int, int], forget: tuple[int, ...] = ()) -> FetchRequest:
    session_id, epoch = session
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in partitions
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="orders", partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=list(forget))] if forget else [],
    )


def sent_partitions(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 3)


def put(api: Api, index: int) -> None:
    api.partitions.leader("orders", index).append_as_leader(memoryview(batch(b"value")))


def test_a_session_sends_everything_once_and_then_changes_only(call: Call, api: Api) -> None:
    first = call(ask((0, 0), (0, 0), (1, 0), (2, 0)), VERSION)
    assert first.session_id > 0
    assert sent_partitions(first) == [0, 1, 2]
    session_id = first.session_id
    assert sent_partitions(call(ask((session_id, 1)), VERSION)) == []
    put(api, 1)
    second = call(ask((session_id, 2)), VERSION)
    assert sent_partitions(second) == [1]
    assert sent_partitions(call(ask((session_id, 3), (1, 1)), VERSION)) == []


def test_partitions_join_and_leave_a_session(call: Call, api: Api) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert sent_partitions(call(ask((session_id, 1), (2, 0)), VERSION)) == [2]
    put(api, 0)
    put(api, 2)
    assert sent_partitions(call(ask((session_id, 2), forget=(0,)), VERSION)) == [2]


def test_a_session_without_partitions_ends(call: Call, api: Api) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id, 1), forget=(0,)), VERSION).session_id == 0
    assert len(api.fetch_sessions) == 0
    assert call(ask((session_id, 2)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_session_or_a_wrong_epoch_is_an_error(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id + 1, 1)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert call(ask((session_id, 5)), VERSION).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert call(ask((session_id, 1)), VERSION).error_code == Error.NONE


def test_the_final_epoch_ends_a_session(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    last = call(ask((session_id, -1), (0, 0)), VERSION)
    assert (last.session_id, sent_partitions(last)) == (0, [0])
    assert call(ask((session_id, 1)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_and_its_end_are_both_sent(call: Call, api: Api) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert sent_partitions(call(ask((session_id, 1), (0, 99)), VERSION)) == [0]
    assert sent_partitions(call(ask((session_id, 2), (0, 0)), VERSION)) == [0]
    assert sent_partitions(call(ask((session_id, 3)), VERSION)) == []


def test_partitions_that_had_data_come_last_in_the_next_response(call: Call, api: Api) -> None:
    session_id = call(ask((0, 0), (0, 0), (1, 0), (2, 0)), VERSION).session_id
    put(api, 0)
    call(ask((session_id, 1)), VERSION)
    for index in range(3):
        put(api, index)
    assert sent_partitions(call(ask((session_id, 2)), VERSION)) == [1, 2, 0]


def test_a_session_by_names_cannot_continue_by_ids(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id, 1)), 13).error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR


class Client:
    """A connection, as far as sessions know it."""


class Cache:
    """Sessions of clients that come and go."""

    def __init__(self, slots: int) -> None:
        self.clock = ManualClock()
        self.sessions = FetchSessions(slots=slots, eviction_ms=1000, clock=self.clock)
        self._connected: dict[int, Client] = {}

    def create(self, partitions: int) -> int:
        """The id of a client's new session, 0 without a session."""
        client = Client()
        fetch = self._begin(ask((0, 0), *every(partitions)), client)
        session_id: int = fetch.response().session_id
        self._connected[session_id] = client
        return session_id

    def add(self, session_id: int, epoch: int, partitions: int) -> None:
        request = ask((session_id, epoch), *every(partitions))
        self._begin(request, self._connected[session_id])

    def _begin(self, request: FetchRequest, client: Client) -> Fetch:
        return self.sessions.begin(request, targets_of(request), client, uses_topic_ids=False)

    def disconnect(self, session_id: int) -> None:
        del self._connected[session_id]

    def has(self, session_id: int) -> bool:
        try:
            self._begin(ask((session_id, 99)), Client())
        except KafkaError as error:
            return error.error == Error.INVALID_FETCH_SESSION_EPOCH
        raise AssertionError("the epoch is wrong")


def every(partitions: int) -> list[tuple[int, int]]:
    return [(index, 0) for index in range(partitions)]


def test_a_larger_session_takes_the_slot_of_the_smallest() -> None:
    cache = Cache(slots=2)
    small, middle = cache.create(1), cache.create(2)
    assert cache.create(1) == 0
    assert cache.create(3)
    assert (cache.has(small), cache.has(middle)) == (False, True)


def test_an_unused_session_loses_its_slot() -> None:
    cache = Cache(slots=2)
    oldest, middle = cache.create(3), cache.create(2)
    cache.clock.advance(1001)
    assert cache.create(1)
    assert (cache.has(oldest), cache.has(middle)) == (False, True)
    assert len(cache.sessions) == 2


def test_sessions_of_closed_connections_lose_their_slots_first() -> None:
    cache = Cache(slots=2)
    small, large = cache.create(1), cache.create(3)
    cache.disconnect(large)
    assert cache.create(1)
    assert (cache.has(small), cache.has(large)) == (True, False)


def test_sessions_are_bounded_by_their_partitions_too() -> None:
    cache = Cache(slots=10)
    bound = 10 * PARTITIONS_PER_SLOT
    assert cache.create(bound + 1) == 0
    for _ in range(3):
        cache.create(bound // 2)
    assert cache.sessions.partitions <= bound


def test_small_sessions_take_the_memory_of_the_largest() -> None:
    cache = Cache(slots=10)
    bound = 10 * PARTITIONS_PER_SLOT
    large, middle = cache.create(bound - 300), cache.create(300)
    assert cache.create(300)
    assert (cache.has(large), cache.has(middle)) == (False, True)
    assert cache.create(bound - 300) == 0, "small sessions make no room for a large one"


def test_room_for_partitions_is_made_by_closed_connections_first() -> None:
    cache = Cache(slots=10)
    bound = 10 * PARTITIONS_PER_SLOT
    large, gone = cache.create(bound - 300), cache.create(300)
    cache.disconnect(gone)
    assert cache.create(300)
    assert (cache.has(large), cache.has(gone)) == (True, False)


def test_a_session_that_grows_past_the_bound_ends() -> None:
    cache = Cache(slots=10)
    bound = 10 * PARTITIONS_PER_SLOT
    small, growing = cache.create(300), cache.create(1)
    cache.add(growing, 1, bound - 300)
    with pytest.raises(KafkaError) as refused:
        cache.add(growing, 2, bound - 299)
    assert refused.value.error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert cache.has(small)
    assert cache.sessions.partitions == 300


def test_a_closed_connection_leaves_its_session_to_others() -> None:
    with Broker({"max.incremental.fetch.session.cache.slots": "1"}) as broker:
        with WireClient(broker.bootstrap) as first:
            assert first.send(ask((0, 0), *every(3)), VERSION).session_id
        with WireClient(broker.bootstrap) as second:
            until(lambda: second.send(ask((0, 0), *every(1)), VERSION).session_id > 0)
