"""Fetches of many partitions, which take turns with other requests."""

import pytest

from millrace import steps
from millrace.api import fetch
from millrace.clock import Clock
from millrace.errors import Error
from millrace.storage.append_origin import AppendOrigin
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..node import create_topic
from ..records import batch
from ..transactional import transactional_batch
from .api import Api
from .conftest import Call
from .parked_fetch import ParkedFetch

PARTITIONS = 8
VERSION = 11
# A turn for each partition that is read, for each that is added to the response, and a few more.
ALL_TURNS = 4 * PARTITIONS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(Clock().now_ms())


@pytest.fixture
def timers(clock: ManualClock) -> ManualTimers:
    return ManualTimers(clock)


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", PARTITIONS)


@pytest.fixture(autouse=True)
def long_fetches(orders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take few partitions for many: a turn ends after each of them."""
    monkeypatch.setattr(fetch, "LONG_FETCH_PARTITIONS", PARTITIONS - 1)
    monkeypatch.setattr(fetch, "PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr(steps, "TURN_SECONDS", 0)


def request(
    session: tuple[int, int] = (0, -1), *, partitions: int = PARTITIONS, **limits: int
) -> FetchRequest:
    asked = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(partitions)]
    return FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="orders", partitions=asked)] if asked else [],
        **limits,
    )


def put(api: Api, index: int) -> None:
    api.partitions.leader("orders", index).append_as_leader(memoryview(batch(b"value")))


def with_records(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions if data.records]


def test_a_long_fetch_has_the_response_of_a_short_one(api: Api, call: Call) -> None:
    put(api, 2)
    put(api, 5)
    response = call(request(), VERSION)
    (topic,) = response.responses
    assert [data.partition_index for data in topic.partitions] == list(range(PARTITIONS))
    assert with_records(response) == [2, 5]


def test_a_long_fetch_of_unknown_partitions_is_answered_at_once(call: Call) -> None:
    response = call(request(partitions=2 * PARTITIONS, max_wait_ms=60_000, min_bytes=1), VERSION)
    errors = [data.error_code for data in response.responses[0].partitions]
    assert errors == [Error.NONE] * PARTITIONS + [Error.UNKNOWN_TOPIC_OR_PARTITION] * PARTITIONS


def test_a_session_makes_its_fetches_long(api: Api, call: Call) -> None:
    first = call(request((0, 0)), VERSION)
    assert first.session_id
    put(api, 3)
    assert with_records(call(request((first.session_id, 1), partitions=0), VERSION)) == [3]
    waiting = ParkedFetch(
        api, request((first.session_id, 2), partitions=0, max_wait_ms=60_000, min_bytes=100)
    )
    put(api, 6)
    (response,) = waiting.responses(turns=ALL_TURNS)
    assert with_records(response) == [6, 3]


def test_a_long_fetch_that_waited_reads_in_turns(api: Api) -> None:
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=1))
    put(api, 4)
    assert waiting.responses(turns=2) == []
    (response,) = waiting.responses(turns=ALL_TURNS)
    assert with_records(response) == [4]
    assert not api.partitions.leader("orders", 0).parked


def test_a_long_fetch_is_answered_when_its_wait_is_over(api: Api) -> None:
    waiting = ParkedFetch(api, request(max_wait_ms=20, min_bytes=1))
    assert waiting.responses(after_ms=19, turns=ALL_TURNS) == []
    (response,) = waiting.responses(after_ms=1, turns=ALL_TURNS)
    assert with_records(response) == []


def test_a_long_fetch_waits_on_when_a_commit_reveals_too_little(api: Api) -> None:
    partition = api.partitions.leader("orders", 1)
    partition.append_as_leader(
        transactional_batch([b"a"], Clock().now_ms(), producer_id=1), AppendOrigin.TRANSACTION
    )
    waiting = ParkedFetch(api, request(max_wait_ms=50, min_bytes=10_000, isolation_level=1))
    partition.write_marker(1, 0, True, 0)
    assert waiting.responses(turns=ALL_TURNS) == []
    (response,) = waiting.responses(after_ms=50, turns=ALL_TURNS)
    assert with_records(response) == [1]


def test_a_closed_connection_ends_its_long_fetch(api: Api) -> None:
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=1))
    waiting.deferred.cancel()
    assert not api.partitions.leader("orders", 0).parked
    put(api, 0)
    assert waiting.responses(turns=ALL_TURNS) == []


def test_a_long_fetch_that_fails_after_its_wait_is_answered(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ParkedFetch(api, request(max_wait_ms=60_000, min_bytes=1))
    failure = RuntimeError("a bug")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(fetch, "_read_in_steps", fail)
    put(api, 0)
    assert waiting.responses(turns=ALL_TURNS) == [failure]
