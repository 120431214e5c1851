"""Status lines, from Spark's reports on batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from millrace.pipelines.console.status import Meter, Status
from millrace.pipelines.run.execution_mode import ExecutionMode


@dataclass
class Clock:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class FakeRun:
    bootstrap: str = "localhost:9092"
    waiting_for_broker: bool = False
    on_progress: Any = None
    planned: list[Any] = field(default_factory=list)


def report(read: int, written: int, state: int | None = None) -> Any:
    operators = [] if state is None else [SimpleNamespace(numRowsTotal=state)]
    return SimpleNamespace(
        name="words",
        numInputRows=read,
        sink=SimpleNamespace(numOutputRows=written),
        durationMs={"triggerExecution": 120},
        batchDuration=120,
        stateOperators=operators,
    )


def test_rates_cover_the_last_ten_seconds() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(20):
        clock.seconds += 1
        meter.record(report(50, 5))
    assert meter.rates() == (55.0, 5.5)
    clock.seconds += 60
    assert meter.rates() == (0.0, 0.0)


def test_uncounted_results_have_no_rate() -> None:
    meter = Meter(Clock())
    meter.record(report(50, -1))
    assert meter.rates() == (50.0, None)


def test_total_of_a_sink_is_converted_to_a_rate() -> None:
    clock = Clock()
    meter = Meter(clock)
    for total in (10, 10, 40):
        clock.seconds += 1
        meter.record(report(50, -1), total)
    assert meter.rates() == (75.0, 20.0)


def test_line_shows_rates_lag_batch_time_state_and_mode() -> None:
    run = FakeRun(
        planned=[
            SimpleNamespace(name="words", execution=ExecutionMode("micro-batch", "update", ""), reached={})
        ]
    )
    status = Status([run], Console())  # type: ignore[list-item]
    assert status.lines() == ["words: micro-batch, starting"]
    run.on_progress(report(50, 5, state=1234), None)
    status._lags["words"] = 4321
    assert status.lines() == [
        "words: micro-batch, 50/s in, 5.0/s out, lag 4,321, batch 120 ms, state 1,234 rows"
    ]


def test_line_shows_that_the_run_waits_for_the_broker() -> None:
    run = FakeRun(
        planned=[
            SimpleNamespace(name="words", execution=ExecutionMode("micro-batch", "append", ""), reached={})
        ]
    )
    run.waiting_for_broker = True
    assert Status([run], Console()).lines() == ["words: waiting for the broker at localhost:9092"]  # type: ignore[list-item]
