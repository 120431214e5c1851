"""Component tasks: an instance of a spout or a bolt, its routes and its figures."""

from __future__ import annotations

import logging
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol

from millrace.topologies.model.bolts import BatchingBolt, Bolt, StatefulBolt
from millrace.topologies.model.component import Component, TaskContext
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogBolt, LogSpout
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.spouts import Spout
from millrace.topologies.model.streams import Stream
from millrace.topologies.model.topology import Plan
from millrace.topologies.model.tuples import TICK_STREAM, Tuple
from millrace.topologies.runtime.acker import new_id
from millrace.topologies.runtime.routing import Chooser, new_chooser
from millrace.topologies.runtime.stats import TaskError, TaskStats
from millrace.topologies.runtime.units import Unit

logger = logging.getLogger(__name__)

ID_BITS = 64
_VALUES = (list, tuple)


class Outlet(Protocol):
    """The exit of the worker: other workers, the log and dead letters."""

    def send_tuple(self, task: int, tup: Tuple) -> None:
        """Deliver a tuple to a task of another worker."""

    def write(self, bolt: LogBolt, tup: Tuple) -> None:
        """Write a tuple to the log."""

    def send_ack(self, worker: int, root: int, edges: int) -> None:
        """Tell the acker of another worker that a tuple is acked."""

    def send_fail(self, worker: int, root: int, reason: str) -> None:
        """Tell the acker of another worker that a tuple has failed."""

    def send_reset(self, worker: int, root: int) -> None:
        """Tell the acker of another worker that a tuple is being worked on."""

    def dead_letter(self, component: str, values: Sequence[Any], stream: Stream, reason: str) -> None:
        """Keep a tuple that is given up."""


class Host(Protocol):
    """The engine as its tasks see it."""

    plan: Plan
    outlet: Outlet
    hosted: frozenset[int]
    thread: int
    queue: deque[tuple[BoltTask, Tuple]]
    bolts: dict[int, BoltTask]
    now: Callable[[], float]
    load: Callable[[int], float]
    tracks_trees: bool
    calls: dict[int, Any]
    """Calls of bolts that run outside the loop, by their id."""
    ended: SimpleQueue[Any]
    """Those of them that have ended."""

    executing: tuple[Task, Tuple | None] | None
    abort_reason: str | None

    def abort(self, reason: str) -> None:
        """Let the worker undo everything since the last commit."""

    def new_root(self) -> int: ...

    def begin_tree(self, root: int, edges: int, task: int, message_id: object) -> None: ...

    def send_ack(self, root: int, edges: int) -> None: ...

    def send_fail(self, root: int, reason: str) -> None: ...

    def send_reset(self, root: int) -> None: ...


class Task(ABC):
    """A component task: its instance, its routes, its figures. It is the collector of its instance."""

    def __init__(self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: Component) -> None:
        self.engine = engine
        self.spec = spec
        self.context = context
        self.stats = TaskStats()
        self._error_interval = value_of("topology.error.throttle.interval.secs", engine.plan.config)
        self._error_limit = value_of("topology.max.error.report.per.interval", engine.plan.config)
        self.routes: dict[str, list[Chooser]] = {name: [] for name in spec.streams}
        self._direct_targets: dict[str, set[int]] = {}
        plan = engine.plan
        for edge in plan.edges_from(context.component):
            targets = plan.tasks[edge.target]
            self._direct_targets.setdefault(edge.stream.name, set()).update(targets)
            self.routes[edge.stream.name].append(
                new_chooser(
                    edge.grouping,
                    edge.stream,
                    context.component,
                    context.task,
                    targets,
                    engine.hosted,
                    engine.load,
                )
            )
        self._conf = dict(plan.config) | dict(spec.config)
        instance.attach(self, context)

    # Life

    def guarded(self, step: Callable[..., object], *arguments: object) -> bool:
        """Run a step of the user's code; an error is reported and does not stop the worker."""
        try:
            step(*arguments)
        except Exception as error:
            self.report_error(error)
            return False
        return True

    def close(self, step: Callable[[], object]) -> None:
        self.guarded(step)
        self.instance_of().detach()

    @abstractmethod
    def instance_of(self) -> Component: ...

    @property
    @abstractmethod
    def current(self) -> Tuple | None: ...

    @abstractmethod
    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]: ...

    @abstractmethod
    def ack(self, tup: Tuple) -> None: ...

    @abstractmethod
    def fail(self, tup: Tuple) -> None: ...

    @abstractmethod
    def reset_timeout(self, tup: Tuple) -> None: ...

    # Emitting

    def _declared(self, values: Sequence[Any], name: str) -> Stream:
        """The stream that values are emitted to; raises TopologyError if they do not fit."""
        stream = self.spec.streams.get(name)
        if stream is not None and isinstance(values, _VALUES) and len(values) == len(stream.fields):
            return stream
        raise self._unfit(values, name, stream)

    def _unfit(self, values: Any, name: str, stream: Stream | None) -> TopologyError:
        """The reason why values cannot be emitted to a stream."""
        component = self.context.component
        if stream is None:
            return TopologyError(
                f"{component} emits to the stream {name!r}, but declares "
                f"{', '.join(self.spec.streams) or 'none'}"
            )
        if not isinstance(values, _VALUES):
            return TopologyError(f"{component} emits {values!r} to the stream {name}; emit a list, [...]")
        return TopologyError(
            f"{component} emits {len(values)} values to the stream {name}, which has "
            f"{len(stream.fields)} fields: {', '.join(stream.fields)}"
        )

    def _stream(self, values: Sequence[Any], name: str) -> Stream:
        if threading.get_ident() != self.engine.thread:
            raise TopologyError(
                f"{self.context.component} emits from another thread; only the thread that runs it may: "
                "hand the values over in a queue, and emit them in process or process_tick"
            )
        return self._declared(values, name)

    def _targets(self, stream: Stream, values: Sequence[Any], direct_task: int | None) -> list[int]:
        if direct_task is not None:
            if not stream.direct:
                raise TopologyError(
                    f"{self.context.component} emits to task {direct_task} on {stream.name}, "
                    "which is not declared as direct"
                )
            if direct_task not in self._direct_targets.get(stream.name, ()):
                raise TopologyError(
                    f"{self.context.component} emits to task {direct_task}, which does not read {stream.name}"
                )
            return [direct_task]
        targets: list[int] = []
        for chooser in self.routes[stream.name]:
            targets += chooser.choose(values)
        return targets

    def _send(
        self,
        task: int,
        values: Sequence[Any],
        stream: Stream,
        edges: dict[int, int] | None,
        units: tuple[Unit, ...],
    ) -> None:
        context = self.context
        tup = Tuple(values, stream.positions, context.component, stream.name, context.task, edges, units)
        bolt = self.engine.bolts.get(task)
        if bolt is None:
            self.engine.outlet.send_tuple(task, tup)
            return
        for unit in units:
            unit.pending += 1
        self.engine.queue.append((bolt, tup))

    def dead_letter(self, values: Sequence[Any], stream: str, reason: str) -> None:
        self.engine.outlet.dead_letter(self.context.component, values, self.spec.streams[stream], reason)

    def report_error(self, error: BaseException | str) -> None:
        """Log an error and keep it for the figures; a flood of errors is cut off."""
        stats, now = self.stats, self.engine.now()
        since = now - self._error_interval
        if sum(1 for known in stats.errors if known.at > since) >= self._error_limit:
            return
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error)).rstrip()
        stats.errors.append(TaskError(now, text))
        stats.error_count += 1
        logger.error("%s, task %d: %s", self.context.component, self.context.task, text)

    def count(self, name: str, value: float) -> None:
        self.stats.custom[name] += value  # type: ignore[assignment]  # a metric may be a fraction


class SpoutTask(Task):
    """A task of a spout."""

    def __init__(self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: Spout) -> None:
        super().__init__(engine, spec, context, instance)
        self.instance = instance
        self.pending = 0
        """Trees under way."""
        self._max_pending = value_of("topology.max.spout.pending", spec.config, engine.plan.config)
        self._emitted = False
        self.is_waiting = False
        """Whether a spout that is a program has not answered yet."""

    def instance_of(self) -> Component:
        return self.instance

    def open(self) -> None:
        self.instance.initialize(self._conf, self.context)

    def ask(self) -> bool:
        """Let the spout emit, unless too many of its tuples are under way; returns whether it emitted."""
        if isinstance(self.instance, LogSpout):
            return False
        if self._max_pending is not None and self.pending >= self._max_pending:
            return False
        self._emitted = False
        self.guarded(self.instance.next_tuple)
        return self._emitted

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]:
        declared = self._stream(values, stream)
        targets = self._targets(declared, values, direct_task)
        self._emitted = True
        self.stats.emitted[stream] += 1
        self.stats.transferred[stream] += len(targets)
        if message_id is None:
            for task in targets:
                self._send(task, values, declared, None, ())
        elif not self.engine.tracks_trees or not targets:
            for task in targets:
                self._send(task, values, declared, None, ())
            self.acked(message_id, 0.0, tracked=False)
        else:
            self._emit_tree(values, declared, targets, message_id)
        return targets

    def _emit_tree(
        self, values: Sequence[Any], stream: Stream, targets: Sequence[int], message_id: object
    ) -> None:
        root, total = self.engine.new_root(), 0
        for task in targets:
            edge = new_id(ID_BITS)
            total ^= edge
            self._send(task, values, stream, {root: edge}, ())
        self.pending += 1
        self.engine.begin_tree(root, total, self.context.task, message_id)

    def emit_record(self, values: Sequence[Any], unit: Unit) -> None:
        """Emit a record of the log: its unit is done when every descendant is."""
        # Held while the record is sent, so that it is not done before it has been sent everywhere.
        unit.pending += 1
        for name, stream in self.spec.streams.items():
            targets = self._targets(stream, values, None)
            self.stats.emitted[name] += 1
            self.stats.transferred[name] += len(targets)
            for task in targets:
                self._send(task, values, stream, None, (unit,))
        unit.release()

    def record_done(self, unit: Unit) -> None:
        """A record of the log is processed in this worker, or must be delivered again."""
        if unit.failure is None:
            self.stats.acked += 1
            self.stats.complete_seconds += perf_counter() - unit.began
        else:
            self.stats.failed += 1

    def acked(self, message_id: object, seconds: float, *, tracked: bool = True) -> None:
        self.pending -= tracked
        self.stats.acked += 1
        self.stats.complete_seconds += seconds
        self.guarded(self.instance.ack, message_id)

    def failed(self, message_id: object, reason: str) -> None:
        self.pending -= 1
        self.stats.failed += 1
        self.guarded(self.instance.fail, message_id)

    def ack(self, tup: Tuple) -> None:
        raise TopologyError(f"{self.context.component} is a spout: it has no tuples to ack")

    def fail(self, tup: Tuple) -> None:
        raise TopologyError(f"{self.context.component} is a spout: it has no tuples to fail")

    def reset_timeout(self, tup: Tuple) -> None:
        raise TopologyError(f"{self.context.component} is a spout: it has no tuples")

    @property
    def current(self) -> None:
        """A spout processes no tuples."""


class BoltTask(Task):
    """A task of a bolt."""

    def __init__(self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: Bolt) -> None:
        super().__init__(engine, spec, context, instance)
        self.instance = instance
        self._current: Tuple | None = None
        self.unended: dict[int, Tuple] | None = None if instance.auto_ack else {}
        """Tuples of a rich bolt that are neither acked nor failed."""
        self._acks = instance.auto_ack and not instance.holds_tuples
        self._fails = instance.auto_fail
        self._process: Callable[[Tuple], object] = (
            self._write if isinstance(instance, LogBolt) else instance.process
        )

    def instance_of(self) -> Component:
        return self.instance

    def open(self) -> None:
        if isinstance(self.instance, StatefulBolt):
            self.instance.init_state(self.instance.state)
        self.instance.initialize(self._conf, self.context)

    def execute(self, tup: Tuple) -> None:
        """Process a tuple. An error fails it and is reported; the worker goes on."""
        if tup.stream == TICK_STREAM:
            self.guarded(self.instance.process_tick, tup)
            return
        stats = self.stats.of((tup.component, tup.stream))
        tup.received = began = perf_counter()
        self._current = tup
        if self.unended is not None:
            self.unended[id(tup)] = tup
        try:
            self._process(tup)
        except Exception as error:
            self.report_error(error)
            if self._fails and not tup.done:
                self._end(tup, type(error).__name__ + ": " + str(error))
        else:
            if self._acks and not tup.done:
                self.ack(tup)
        finally:
            self._current = None
        stats.executed += 1
        stats.execute_seconds += perf_counter() - began

    @property
    def current(self) -> Tuple | None:
        """The tuple being processed."""
        return self._current

    def _write(self, tup: Tuple) -> None:
        assert isinstance(self.instance, LogBolt)
        self.engine.outlet.write(self.instance, tup)

    def reset(self) -> None:
        """The transaction is aborted: tuples that the bolt held are delivered again, or are state."""
        if self.unended is not None:
            self.unended.clear()
        if isinstance(self.instance, BatchingBolt):
            self.instance.forget()

    def before_commit(self) -> None:
        """A commit comes: state must be up to date."""

    def give_up(self, tup: Tuple, reason: str) -> None:
        """Keep a tuple that failed too often in the dead-letter topic."""
        stream = self.engine.plan.components[tup.component].streams[tup.stream]
        self.engine.outlet.dead_letter(self.context.component, tup.values, stream, reason)

    # Emitting

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]:
        declared = self._stream(values, stream)
        targets = self._targets(declared, values, direct_task)
        self.stats.emitted[stream] += 1
        self.stats.transferred[stream] += len(targets)
        if not anchors:
            for task in targets:
                self._send(task, values, declared, None, ())
            return targets
        units = anchors[0].units if len(anchors) == 1 else _units_of(anchors)
        tracked = [anchor for anchor in anchors if anchor.edges]
        for task in targets:
            self._send(task, values, declared, _new_edges(tracked) if tracked else None, units)
        return targets

    # Acking

    def ack(self, tup: Tuple) -> None:
        if self._ends_twice(tup):
            return
        stats = self.stats.of((tup.component, tup.stream))
        stats.acked += 1
        stats.process_seconds += perf_counter() - tup.received
        if tup.edges:
            for root, edge in tup.edges.items():
                self.engine.send_ack(root, edge ^ (tup.children or {}).get(root, 0))
        for unit in tup.units:
            unit.release()

    def fail(self, tup: Tuple) -> None:
        self._end(tup, f"{self.context.component} failed it")

    def _end(self, tup: Tuple, reason: str) -> None:
        if self._ends_twice(tup):
            return
        self.stats.of((tup.component, tup.stream)).failed += 1
        if tup.edges:
            # Its spout decides whether it comes again: the frame that brought it is done.
            for root in tup.edges:
                self.engine.send_fail(root, reason)
            for unit in tup.units:
                unit.release()
            return
        for unit in tup.units:
            unit.fail(self.context.component, reason)

    def _ends_twice(self, tup: Tuple) -> bool:
        if tup.done:
            self.report_error(
                f"{self.context.component} acks or fails a tuple a second time, which is ignored: {tup!r}"
            )
            return True
        tup.done = True
        if self.unended is not None:
            self.unended.pop(id(tup), None)
        return False

    def reset_timeout(self, tup: Tuple) -> None:
        for root in tup.edges or ():
            self.engine.send_reset(root)


def _units_of(anchors: Sequence[Tuple]) -> tuple[Unit, ...]:
    return tuple({id(unit): unit for anchor in anchors for unit in anchor.units}.values())


def _new_edges(anchors: Sequence[Tuple]) -> dict[int, int]:
    """One new edge for each tree and anchor, counted with the anchor until it is acked."""
    edges: dict[int, int] = {}
    for anchor in anchors:
        if anchor.children is None:
            anchor.children = {}
        for root in anchor.edges or ():
            edge = new_id(ID_BITS)
            edges[root] = edges.get(root, 0) ^ edge
            anchor.children[root] = anchor.children.get(root, 0) ^ edge
    return edges
