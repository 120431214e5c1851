"""Windows hold the same tuples as a model that looks at all tuples at once."""

import math
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.testing.topologies import LocalTopology
from millrace.topologies import (
    Count,
    Duration,
    LogSpout,
    Spout,
    Stream,
    Topology,
    TupleWindow,
    Window,
    WindowedBolt,
)
from millrace.topologies.model.topology import build_plan


class Feed(Spout):
    """Emits what the test puts in, with a message id each."""

    outputs = ["at", "number"]
    feed: ClassVar[list[tuple[int, int]]] = []
    acked: ClassVar[list[int]] = []

    def next_tuple(self) -> None:
        if Feed.feed:
            at, number = Feed.feed.pop(0)
            self.emit([at, number], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        Feed.acked.append(tup_id)


class Collect(WindowedBolt):
    """Remembers the windows it saw."""

    outputs = [Stream(["late_tuple"], name="late")]
    windows: ClassVar[list[tuple[int, list[int]]]] = []

    def process_window(self, window: TupleWindow) -> None:
        Collect.windows.append((window.end_timestamp, [tup["number"] for tup in window]))


def run(window: Window, feed: list[tuple[int, int]], seconds_between: float = 0.0) -> LocalTopology:
    """Send tuples through a windowed bolt and return what ran; `Collect.windows` has the windows."""
    Feed.feed, Feed.acked, Collect.windows = [], [], []
    spout = Feed.spec(name="feed")
    bolt = Collect.spec(window, inputs=[spout], name="collect")
    config = {"topology.message.timeout.secs": 1_000_000}
    plan = build_plan("windows", {"feed": spout, "collect": bolt}, guarantee="at-least-once", config=config)
    local = LocalTopology(plan)
    with local:
        for item in feed:
            Feed.feed.append(item)
            local.run()
            local.advance(seconds_between)
        local.advance(window.watermark_seconds + 1)
    return local


def numbers(count: int) -> list[tuple[int, int]]:
    return [(0, number) for number in range(count)]


def test_a_tumbling_count_window_holds_each_tuple_once() -> None:
    run(Window.tumbling(Count(3)), numbers(8))
    assert [held for _, held in Collect.windows] == [[0, 1, 2], [3, 4, 5]]
    assert Feed.acked == [0, 1, 2, 3, 4, 5]


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 6), slide=st.integers(1, 6), count=st.integers(0, 20))
def test_windows_by_count_are_those_of_the_model(length: int, slide: int, count: int) -> None:
    run(Window.sliding(Count(length), Count(slide)), numbers(count))
    expected = [list(range(max(0, end - length), end)) for end in range(slide, count + 1, slide)]
    assert [held for _, held in Collect.windows] == expected
    last = len(expected) * slide
    kept = max(length - slide, 0)
    assert Feed.acked == list(range(max(0, last - kept)))


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.integers(0, 60), max_size=15).map(sorted),
    length=st.integers(1, 12),
    slide=st.integers(1, 8),
)
def test_windows_of_event_time_are_those_of_the_model(times: list[int], length: int, slide: int) -> None:
    feed = [(at * 1000, number) for number, at in enumerate(times)]
    window = Window.sliding(Duration(length), Duration(slide), timestamp="at", watermark_seconds=1)
    run(window, feed)
    assert Collect.windows == model(feed, length * 1000, slide * 1000)


def model(feed: list[tuple[int, int]], length: int, slide: int) -> list[tuple[int, list[int]]]:
    """Every window (end - length, end] whose end the watermark has passed and that holds a tuple."""
    if not feed:
        return []
    watermark = max(at for at, _ in feed)
    first = math.ceil(min(at for at, _ in feed) / slide) * slide
    ends = range(first, watermark + 1, slide)
    windows = [(end, [number for at, number in feed if end - length < at <= end]) for end in ends]
    return [(end, held) for end, held in windows if held]


def test_late_tuples_go_to_their_stream_and_are_acked() -> None:
    window = Window.tumbling(Duration(10), timestamp="at", late_stream="late")
    local = run(window, [(5_000, 0), (25_000, 1), (3_000, 2)], seconds_between=2)
    assert [held for _, held in Collect.windows] == [[0]]
    assert 2 in Feed.acked
    assert local.engine.bolts[local.plan.tasks["collect"][0]].stats.emitted["late"] == 1


def test_lag_keeps_windows_open_for_tuples_out_of_order() -> None:
    window = Window.tumbling(Duration(10), timestamp="at", lag_seconds=5)
    run(window, [(5_000, 0), (12_000, 1), (8_000, 2), (30_000, 3)], seconds_between=2)
    assert Collect.windows[0] == (10_000, [0, 2])


def test_a_sliding_window_of_time_follows_the_clock() -> None:
    run(Window.sliding(Duration(3), Duration(1)), numbers(3), seconds_between=1)
    assert [held for _, held in Collect.windows] == [[0], [0, 1], [1, 2], [2]]
    assert Feed.acked == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": Window.tumbling(Count(0))}, "must be positive"),
        ({"window": Window.tumbling(Duration(1), timestamp="when")}, "reads the time from the field 'when'"),
        ({"window": Window.tumbling(Duration(1), late_stream="late")}, "only windows with a timestamp"),
        ({}, "has no window"),
    ],
)
def test_windows_that_cannot_work_are_refused_when_the_topology_is_built(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):

        class Wrong(Topology):
            lines = LogSpout.spec("lines")
            collect = Collect.spec(inputs=[lines], **options)
