"""Samples of the tuples that components emit, for people who want to see what flows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from millrace.topologies.model.streams import Stream
from millrace.topologies.runtime.tasks import Task

# So that a sample of a fast component does not become a load of its own.
MOST_PER_SECOND = 100

Write = Callable[[bytes], object]


class Sample(msgspec.Struct):
    """One tuple that was emitted."""

    time_ms: int
    component: str
    task: int
    stream: str
    values: dict[str, Any]


class Sampler:
    """Samples the tasks of a worker as its orders say. Owned by the worker's loop.

    A sampled stream has a further route, which sees every tuple and leads nowhere. Others cost nothing.
    """

    def __init__(self, tasks: Iterable[Task], write: Write) -> None:
        self._tasks = list(tasks)
        self._write = write
        self._shares: dict[str, float] = {}

    def follow(self, shares: Mapping[str, float]) -> None:
        """Sample these components, each by a share in percent, and no others."""
        if shares == self._shares:
            return
        self._shares = dict(shares)
        for task in self._tasks:
            share = self._shares.get(task.context.component, 0.0)
            for name, routes in task.routes.items():
                routes[:] = [route for route in routes if not isinstance(route, _Observer)]
                if share > 0:
                    routes.append(_Observer(task, task.spec.streams[name], share, self._write))


class _Observer:
    """A route to no task, which writes every Nth tuple."""

    def __init__(self, task: Task, stream: Stream, share: float, write: Write) -> None:
        self._context = task.context
        self._stream = stream
        self._share = share
        self._write = write
        self._due = 0.0
        self._second = 0
        self._written = 0

    def choose(self, values: Sequence[Any]) -> list[int]:
        self._due += self._share
        if self._due >= 100.0:
            self._due -= 100.0
            self._note(values)
        return []

    def _note(self, values: Sequence[Any]) -> None:
        now = time.time()
        if int(now) != self._second:
            self._second, self._written = int(now), 0
        if self._written >= MOST_PER_SECOND:
            return
        self._written += 1
        sample = Sample(
            round(now * 1000),
            self._context.component,
            self._context.task,
            self._stream.name,
            dict(zip(self._stream.fields, values, strict=False)),
        )
        self._write(msgspec.json.encode(sample, enc_hook=str))
