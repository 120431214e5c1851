"""Fetch sessions: only what changes travels, and a lost session is noticed."""

import pytest

from millrace.api.context import Context
from millrace.api.fetch_sessions import FetchSessions
from millrace.errors import Error
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


def told(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


@pytest.fixture(autouse=True)
def orders(ctx: Context) -> None:
    create_topic(ctx, "orders", 3)


def put(ctx: Context, index: int) -> None:
    ctx.partitions.leader("orders", index).append(memoryview(batch(b"value")))


def test_a_session_tells_everything_once_and_then_only_news(call: Call, ctx: Context) -> None:
    first = call(ask((0, 0), (0, 0), (1, 0), (2, 0)), VERSION)
    assert first.session_id > 0
    assert told(first) == [0, 1, 2]
    session_id = first.session_id
    assert told(call(ask((session_id, 1)), VERSION)) == []
    put(ctx, 1)
    second = call(ask((session_id, 2)), VERSION)
    assert told(second) == [1]
    assert told(call(ask((session_id, 3), (1, 1)), VERSION)) == []


def test_partitions_join_and_leave_a_session(call: Call, ctx: Context) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert told(call(ask((session_id, 1), (2, 0)), VERSION)) == [2]
    put(ctx, 0)
    put(ctx, 2)
    assert told(call(ask((session_id, 2), forget=(0,)), VERSION)) == [2]


def test_a_session_that_forgets_everything_is_over(call: Call, ctx: Context) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id, 1), forget=(0,)), VERSION).session_id == 0
    assert len(ctx.fetch_sessions) == 0
    assert call(ask((session_id, 2)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_session_or_a_wrong_epoch_is_an_error(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id + 1, 1)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert call(ask((session_id, 5)), VERSION).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert call(ask((session_id, 1)), VERSION).error_code == Error.NONE


def test_the_final_epoch_ends_a_session(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    last = call(ask((session_id, -1), (0, 0)), VERSION)
    assert (last.session_id, told(last)) == (0, [0])
    assert call(ask((session_id, 1)), VERSION).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_and_its_end_too(call: Call, ctx: Context) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert told(call(ask((session_id, 1), (0, 99)), VERSION)) == [0]
    assert told(call(ask((session_id, 2), (0, 0)), VERSION)) == [0]
    assert told(call(ask((session_id, 3)), VERSION)) == []


def test_what_had_data_comes_last_next_time(call: Call, ctx: Context) -> None:
    session_id = call(ask((0, 0), (0, 0), (1, 0), (2, 0)), VERSION).session_id
    put(ctx, 0)
    call(ask((session_id, 1)), VERSION)
    for index in range(3):
        put(ctx, index)
    assert told(call(ask((session_id, 2)), VERSION)) == [1, 2, 0]


def test_a_session_by_names_cannot_go_on_by_ids(call: Call) -> None:
    session_id = call(ask((0, 0), (0, 0)), VERSION).session_id
    assert call(ask((session_id, 1)), 13).error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_slots_go_to_larger_sessions_and_away_from_stale_ones() -> None:
    clock = ManualClock()
    sessions = FetchSessions(slots=2, eviction_ms=1000, clock=clock)

    def begin(*partitions: tuple[int, int]) -> int:
        return sessions.begin(ask((0, 0), *partitions), uses_topic_ids=False).response([]).session_id

    small, middle = begin((0, 0)), begin((0, 0), (1, 0))
    assert small and middle
    assert begin((0, 0)) == 0, "a session no larger than the others takes no slot from them"
    assert begin((0, 0), (1, 0), (2, 0)), "a larger session takes the smallest one's slot"
    clock.advance(1001)
    assert begin((0, 0)), "a session that nobody uses gives its slot away"
    assert len(sessions) == 2
