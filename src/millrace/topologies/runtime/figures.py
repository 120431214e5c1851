"""The figures of a worker: one record each second in the topic `__topology_metrics`.

A record holds what has happened since the record before it, so a reader adds records up over any span of
time and over restarts of the worker. A record without tasks says that the worker is alive and idle.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer

from millrace.topologies.runtime import topics
from millrace.topologies.runtime.stats import InputStats, TaskStats
from millrace.topologies.runtime.tasks import Task

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
ERROR_CHARACTERS = 4000
FLUSH_SECONDS = 5.0
_FRACTION_DIGITS = 3


class InputFigures(msgspec.Struct, omit_defaults=True):
    """Tuples of one stream that a bolt's task received."""

    component: str
    stream: str
    executed: int = 0
    acked: int = 0
    failed: int = 0
    execute_ms: float = 0.0
    """Sum of the times inside `process`, of all executed tuples."""
    process_ms: float = 0.0
    """Sum of the times from receipt to ack, of all acked tuples."""


class TaskFigures(msgspec.Struct, omit_defaults=True):
    """One task of a component."""

    component: str
    task: int
    emitted: dict[str, int] = {}
    """By stream."""
    transferred: dict[str, int] = {}
    inputs: list[InputFigures] = []
    acked: int = 0
    """Tuple trees of a spout, or records of a log spout, that are done."""
    failed: int = 0
    complete_ms: float = 0.0
    """Sum of the times from emit to end, of all acked trees."""
    custom: dict[str, float] = {}
    """The component's own metrics."""


class ErrorFigures(msgspec.Struct, omit_defaults=True):
    """An error of the user's code, or of the worker itself if it has no component."""

    time_ms: int
    error: str
    host: str
    worker: int
    component: str | None = None
    task: int | None = None


class WorkerFigures(msgspec.Struct, omit_defaults=True):
    """One record: the figures of one worker since its last record."""

    topology: str
    """The topology's id."""
    worker: int
    host: str
    pid: int
    time_ms: int
    """The end of the span that the figures are for."""
    seconds: float
    """The length of that span."""
    uptime_seconds: float
    tasks: list[TaskFigures] = []
    errors: list[ErrorFigures] = []
    hosted: list[int] = []
    """The tasks that the worker runs."""
    lag_bytes: dict[int, int] = {}
    """By task of another worker: bytes that this worker has sent and that the task has not processed."""


_decoder = msgspec.json.Decoder(WorkerFigures)


def decode_figures(content: bytes) -> WorkerFigures:
    """A record of the topic; raises msgspec.ValidationError or msgspec.DecodeError if it is not one."""
    return _decoder.decode(content)


class Reporter:
    """Writes the figures of one worker. Owned by the worker's loop, except `report_failure`."""

    def __init__(self, topology: str, worker: int, client: Mapping[str, Any], tasks: Iterable[Task]) -> None:
        self._topology = topology
        self._worker = worker
        self._tasks = list(tasks)
        self._host = socket.gethostname()
        self._pid = os.getpid()
        self._started = self._last = time.monotonic()
        self._before = {id(task): TaskStats() for task in self._tasks}
        # Figures are not worth waiting for: they are sent beside the data, and dropped if the log is away.
        self._producer = Producer(
            {**client, "linger.ms": 50, "message.timeout.ms": 10_000, "queue.buffering.max.kbytes": 8192}
        )

    @property
    def due(self) -> float:
        """The moment of the next record, on the monotonic clock."""
        return self._last + INTERVAL_SECONDS

    def report(self, engine_now: float, lag_bytes: Mapping[int, int] | None = None) -> None:
        """Write what has happened since the last record. `engine_now` is the engine's time, of its errors."""
        now = time.monotonic()
        figures = self._new_record(now)
        figures.lag_bytes = dict(lag_bytes or {})
        for task in self._tasks:
            before, stats = self._before[id(task)], task.stats
            changed = _difference(task, before, stats)
            if changed is not None:
                figures.tasks.append(changed)
            figures.errors += self._new_errors(task, before, engine_now)
            self._before[id(task)] = _copy(stats)
        self._last = now
        self._write(figures)

    def report_failure(self, error: str, task: Task | None = None) -> None:
        """Write an error that ends the worker. Any thread may call it; waits until the log has it."""
        figures = self._new_record(time.monotonic())
        figures.errors.append(self._error(error, 0.0, task))
        self._write(figures)
        self._producer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self._producer.flush(FLUSH_SECONDS)

    def _new_record(self, now: float) -> WorkerFigures:
        return WorkerFigures(
            topology=self._topology,
            worker=self._worker,
            host=self._host,
            pid=self._pid,
            time_ms=round(time.time() * 1000),
            seconds=round(now - self._last, _FRACTION_DIGITS),
            uptime_seconds=round(now - self._started, _FRACTION_DIGITS),
            hosted=sorted(task.context.task for task in self._tasks),
        )

    def _new_errors(self, task: Task, before: TaskStats, engine_now: float) -> list[ErrorFigures]:
        count = min(task.stats.error_count - before.error_count, len(task.stats.errors))
        newest = list(task.stats.errors)[len(task.stats.errors) - count :]
        return [self._error(error.text, engine_now - error.at, task) for error in newest]

    def _error(self, text: str, seconds_ago: float, task: Task | None) -> ErrorFigures:
        return ErrorFigures(
            time_ms=round((time.time() - seconds_ago) * 1000),
            error=text[-ERROR_CHARACTERS:],
            host=self._host,
            worker=self._worker,
            component=None if task is None else task.context.component,
            task=None if task is None else task.context.task,
        )

    def _write(self, figures: WorkerFigures) -> None:
        try:
            self._producer.produce(topics.METRICS, key=self._topology, value=msgspec.json.encode(figures))
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            logger.warning("figures of worker %d are dropped: %s", self._worker, error)


def _difference(task: Task, before: TaskStats, stats: TaskStats) -> TaskFigures | None:
    """The figures of a task since `before`, None if there are none."""
    inputs = [
        changed
        for source, now in stats.inputs.items()
        if (changed := _input_difference(source, before.inputs.get(source, InputStats()), now)) is not None
    ]
    figures = TaskFigures(
        task.context.component,
        task.context.task,
        emitted=dict(stats.emitted - before.emitted),
        transferred=dict(stats.transferred - before.transferred),
        inputs=inputs,
        acked=stats.acked - before.acked,
        failed=stats.failed - before.failed,
        complete_ms=_milliseconds(stats.complete_seconds - before.complete_seconds),
        custom={
            name: value - before.custom[name]
            for name, value in stats.custom.items()
            if value != before.custom[name]
        },
    )
    is_idle = not (inputs or figures.emitted or figures.acked or figures.failed or figures.custom)
    return None if is_idle else figures


def _input_difference(source: tuple[str, str], before: InputStats, now: InputStats) -> InputFigures | None:
    if (now.executed, now.acked, now.failed) == (before.executed, before.acked, before.failed):
        return None
    return InputFigures(
        *source,
        executed=now.executed - before.executed,
        acked=now.acked - before.acked,
        failed=now.failed - before.failed,
        execute_ms=_milliseconds(now.execute_seconds - before.execute_seconds),
        process_ms=_milliseconds(now.process_seconds - before.process_seconds),
    )


def _copy(stats: TaskStats) -> TaskStats:
    """The counts as they are now; the errors themselves are not needed again."""
    return TaskStats(
        emitted=stats.emitted.copy(),
        transferred=stats.transferred.copy(),
        inputs={source: replace(found) for source, found in stats.inputs.items()},
        acked=stats.acked,
        failed=stats.failed,
        complete_seconds=stats.complete_seconds,
        custom=stats.custom.copy(),
        error_count=stats.error_count,
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, _FRACTION_DIGITS)
