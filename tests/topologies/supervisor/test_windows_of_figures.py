"""Figures over Storm's windows of time."""

import msgspec

from millrace.topologies.runtime.figures import ErrorFigures, InputFigures, TaskFigures, WorkerFigures
from millrace.topologies.supervisor.figures import ALL_TIME, AllFigures, total
from millrace.topologies.supervisor.storm_json import uptime

NOW = 1_800_000_000


def record(seconds_ago: float, executed: int, **more: object) -> bytes:
    task = TaskFigures(
        "count", 3, inputs=[InputFigures("split", "default", executed=executed, execute_ms=2.0)]
    )
    figures = WorkerFigures(
        topology="words-1-1",
        worker=0,
        host="here",
        pid=1,
        time_ms=round((NOW - seconds_ago) * 1000),
        seconds=1.0,
        uptime_seconds=1.0,
        tasks=[task],
        hosted=[3],
    )
    return msgspec.json.encode(msgspec.structs.replace(figures, **more))


def executed(figures: AllFigures, window: str) -> int:
    sums = figures.of("words-1-1").within(window, NOW)
    return total(sums[3], "executed", "split", "default") if 3 in sums else 0


def test_a_window_counts_what_happened_within_it() -> None:
    figures = AllFigures()
    for seconds_ago, count in ((90_000, 1000), (50_000, 100), (5_000, 10), (60, 1)):
        figures.add(record(seconds_ago, count))
    assert executed(figures, "600") == 1
    assert executed(figures, "10800") == 11
    assert executed(figures, "86400") == 111
    assert executed(figures, ALL_TIME) == 1111


def test_silence_empties_a_window_and_not_the_total() -> None:
    figures = AllFigures()
    figures.add(record(700, 5))
    assert executed(figures, "600") == 0
    assert executed(figures, ALL_TIME) == 5


def test_a_record_that_is_no_record_is_ignored() -> None:
    figures = AllFigures()
    for content in (None, b"", b"{}", b"\xff"):
        figures.add(content)
    figures.add(record(1, 5))
    assert executed(figures, ALL_TIME) == 5


def test_topologies_that_are_gone_are_forgotten() -> None:
    figures = AllFigures()
    figures.add(record(1, 5, errors=[ErrorFigures(NOW * 1000, "ValueError", "here", 0, "count", 3)]))
    assert [error.error for error in figures.of("words-1-1").errors["count"]] == ["ValueError"]
    figures.keep_only(["others-1-1"])
    assert executed(figures, ALL_TIME) == 0


def test_durations_are_written_as_storm_writes_them() -> None:
    assert [uptime(seconds) for seconds in (0, 59, 61, 3600, 90_061)] == [
        "0s",
        "59s",
        "1m 1s",
        "1h 0m 0s",
        "1d 1h 1m 1s",
    ]
