"""Coordination of the bolts of a function: each learns when it has all tuples of a call.

A task that has finished a call tells every task of the next bolt how many tuples it has sent there. A task
has finished when all tasks before it have reported, and as many tuples as they sent have come. Reports follow
the tuples on the same way, so they never overtake them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from millrace.topologies import Bolt, TopologyError, Tuple
from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.runtime.hashing import stable_hash

COORDINATION = "coordination"
"""The stream of reports."""
# A call that is not finished by now has lost tuples in a crash; its caller has got a time-out.
FORGET_SECONDS = 600.0
TICK_SECONDS = 30


class BatchBolt(Bolt):
    """A bolt with an instance of its own for each call."""

    def begin_batch(self, request: str) -> None:
        """The call begins."""

    def finish_batch(self) -> None:
        """All tuples of the call have come: emit what remains."""


@dataclass
class Call:
    """A call under way in a task."""

    began: float
    instance: Bolt
    received: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    reports: dict[int, int] = field(default_factory=dict)
    """By task of the bolt before: the number of tuples that it sent here."""
    emitted: int = 0


class CoordinatedBolt(Bolt):
    """Runs a bolt of a function, and counts the tuples of each call."""

    config: ClassVar[Mapping[str, Any]] = {"topology.tick.tuple.freq.secs": TICK_SECONDS}

    def __init__(
        self,
        inner: type[Bolt],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        upstream: str | None,
        downstream: str | None,
    ) -> None:
        """`upstream`: the bolt before, None for the first; `downstream`: the next, None for the last."""
        self._make: Callable[[], Bolt] = partial(inner, *arguments, **keywords)
        self._is_batch = issubclass(inner, BatchBolt)
        self._upstream = upstream
        self._downstream = downstream
        self._calls: dict[str, Call] = {}
        self._conf: dict[str, Any] = {}
        self._shared: Bolt | None = None

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        inner, arguments, keywords = spec.arguments[:3]
        try:
            inner(*arguments, **keywords)
        except TypeError as error:
            raise TopologyError(f"{label}: {inner.__name__} cannot be created: {error}") from error

    def initialize(self, conf: dict[str, Any], context: TaskContext) -> None:
        self._conf = conf
        if not self._is_batch:
            self._shared = self._new_instance()

    def cleanup(self) -> None:
        if self._shared is not None:
            self._shared.cleanup()

    def process(self, tup: Tuple) -> None:
        request = tup[0]
        call = self._calls.get(request) or self._begin(request)
        try:
            if tup.stream == COORDINATION:
                call.reports[tup.task] = tup[1]
            else:
                call.received += 1
                call.instance.process(tup)
            if self._has_all(call):
                self._finish(request, call)
        except Exception:
            # The caller gets the error now; what else comes for the call is of no use.
            self._calls.pop(request, None)
            raise

    def process_tick(self, tup: Tuple) -> None:
        """Forget calls that cannot finish any more."""
        oldest = time.monotonic() - FORGET_SECONDS
        for request in [request for request, call in self._calls.items() if call.began < oldest]:
            del self._calls[request]

    def _begin(self, request: str) -> Call:
        instance = self._shared or self._new_instance()
        call = self._calls[request] = Call(time.monotonic(), instance)
        if isinstance(instance, BatchBolt):
            instance.begin_batch(request)
        return call

    def _new_instance(self) -> Bolt:
        instance = self._make()
        instance.attach(_Counting(self), self.context)
        instance.initialize(self._conf, self.context)
        return instance

    def _has_all(self, call: Call) -> bool:
        expected = 1 if self._upstream is None else len(self.context.tasks[self._upstream])
        return len(call.reports) == expected and call.received == sum(call.reports.values())

    def _finish(self, request: str, call: Call) -> None:
        if not self._answers(request):
            pass
        elif isinstance(call.instance, BatchBolt):
            call.instance.finish_batch()
        elif (finished := getattr(call.instance, "finished_id", None)) is not None:
            finished(request)
        if self._downstream is None and not call.emitted and self.context.task_index == 0:
            self._require_result(call)
        del self._calls[request]
        for task in self.context.tasks.get(self._downstream or "", ()):
            self.emit([request, call.sent[task]], stream=COORDINATION, direct_task=task)

    def _answers(self, request: str) -> bool:
        """Whether this task finishes the call: of the last bolt, only the one that its id is grouped to."""
        if self._downstream is not None:
            return True
        tasks = self.context.tasks[self.context.component]
        return tasks[stable_hash(request) % len(tasks)] == self.context.task

    def _require_result(self, call: Call) -> None:
        """With a single task, a call without a result would never be answered."""
        if len(self.context.tasks[self.context.component]) == 1:
            raise TopologyError("the function returned nothing; its last bolt must emit a result")

    def send(self, values: Sequence[Any], **options: Any) -> list[int]:
        """Emit for the inner bolt. The last bolt's id is that of the call, and its result is text."""
        request = values[0] if values else None
        call = self._calls.get(request) if isinstance(request, str) else None
        if call is None:
            raise TopologyError(
                f"{self.context.component} emits {values!r}; the first field is the id of the call, which it"
                " gets as the first field of its tuples"
            )
        if self._downstream is None:
            values = [call_of(str(request)), *map(_as_text, values[1:])]
        tasks = self.collector.emit(values, **options)
        call.emitted += 1
        call.sent.update(tasks)
        return tasks


class _Counting:
    """The collector of an inner bolt: emits through the bolt around it, which acks and fails."""

    def __init__(self, outer: CoordinatedBolt) -> None:
        self._outer = outer

    @property
    def current(self) -> Tuple | None:
        return self._outer.collector.current

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]:
        return self._outer.send(
            values, stream=stream, anchors=anchors, direct_task=direct_task, message_id=message_id
        )

    def ack(self, tup: Tuple) -> None:
        """Tuples are acked when they are processed."""

    def fail(self, tup: Tuple) -> None:
        raise TopologyError("the bolt failed the call")

    def reset_timeout(self, tup: Tuple) -> None:
        self._outer.collector.reset_timeout(tup)

    def report_error(self, error: BaseException | str) -> None:
        self._outer.collector.report_error(error)

    def count(self, name: str, value: float) -> None:
        self._outer.collector.count(name, value)

    def dead_letter(self, values: Sequence[Any], stream: str, reason: str) -> None:
        self._outer.collector.dead_letter(values, stream, reason)


def call_of(request: str) -> str:
    """The id of a call without that of the attempt."""
    return request.partition(".")[0]


def _as_text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
