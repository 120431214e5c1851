"""The tasks of one worker, without input or output: what runs in a Spark task, a plain process, or a test.

Tuples between tasks of the same worker wait in one queue, first in, first out. Tuples for other workers go to
the `Outlet`. Everything happens on one thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from millrace.topologies.model.bolts import BatchingBolt, Bolt, StatefulBolt
from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.config import value_of
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.shell import ShellBolt, ShellSpout
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.spouts import Spout
from millrace.topologies.model.topology import Plan
from millrace.topologies.model.tuples import SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM, Tuple
from millrace.topologies.model.windows import WindowedBolt
from millrace.topologies.runtime.acker import Acker, Tree, new_id
from millrace.topologies.runtime.held import HeldTuples, holds_state
from millrace.topologies.runtime.holding_task import HoldingTask
from millrace.topologies.runtime.instances import new_instance
from millrace.topologies.runtime.off_loop import AsyncTask, Call, Elsewhere, ThreadedTask
from millrace.topologies.runtime.shell_tasks import Message, Pending, ShellBoltTask, ShellSpoutTask
from millrace.topologies.runtime.tasks import BoltTask, Outlet, SpoutTask, Task
from millrace.topologies.runtime.units import Unit
from millrace.topologies.runtime.window_task import WindowTask

# A tree's id is a worker's number above this many random bits.
WORKER_SHIFT = 52
_TICK_POSITIONS = {"__interval": 0}


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since any fixed moment; never goes back."""


class Engine:
    """Runs the tasks of one worker. Owned by the thread that calls it; not thread-safe."""

    def __init__(
        self,
        plan: Plan,
        outlet: Outlet,
        clock: Clock,
        *,
        tasks: Collection[int] | None = None,
        worker: int = 0,
        state_of: Callable[[str, int], Any] = lambda component, task: {},
        held_of: Callable[[str, int], Any] | None = None,
        load: Callable[[int], float] = lambda task: 0.0,
        directory: str = "",
        bootstrap: str = "",
    ) -> None:
        """`tasks`: those of this worker, all unless given. `state_of` opens the state of a stateful task.

        `held_of` opens the state for tuples that a task holds, where they outlive commits.
        """
        self.plan = plan
        self.outlet = outlet
        self.now = clock.now
        self.worker = worker
        self._bootstrap = bootstrap
        self.load = load
        self.thread = threading.get_ident()
        self.active = False
        self.held_back: frozenset[str] = frozenset()
        """Spouts that must not emit now, since too much waits behind them."""
        self.executing: tuple[Task, Tuple | None] | None = None
        """The task whose code runs in the loop now; another thread may look at it."""
        self.calls: dict[int, Call | Pending] = {}
        self.ended: SimpleQueue[Call | Message] = SimpleQueue()
        self.abort_reason: str | None = None
        self._elsewhere = Elsewhere()
        self._held_of = held_of
        self._directory = directory
        self.tracks_trees = (
            plan.guarantee != "none" and value_of("topology.acker.executors", plan.config) != 0
        )
        self.acker = Acker(
            timeout=self._tree_timeout(),
            now=clock.now,
            acked=self._tree_done,
            failed=self._tree_failed,
        )
        self.hosted = frozenset(
            tasks if tasks is not None else (task for numbers in plan.tasks.values() for task in numbers)
        )
        self.queue: deque[tuple[BoltTask, Tuple]] = deque()
        self._timers: list[_Timer] = []
        self.spouts: dict[int, SpoutTask] = {}
        self.bolts: dict[int, BoltTask] = {}
        for component, spec in plan.components.items():
            for index, task in enumerate(plan.tasks[component]):
                if task in self.hosted:
                    self._add_task(component, spec, task, index, state_of)

    def _tree_timeout(self) -> float | None:
        if not value_of("topology.enable.message.timeouts", self.plan.config):
            return None
        return float(value_of("topology.message.timeout.secs", self.plan.config))

    def _add_task(
        self, component: str, spec: ComponentSpec, task: int, index: int, state_of: Callable[[str, int], Any]
    ) -> None:
        context = TaskContext(
            self.plan.name,
            component,
            task,
            index,
            self.plan.tasks,
            self.worker,
            self._directory,
            self._bootstrap,
        )
        instance = new_instance(spec, component)
        if isinstance(instance, Spout):
            self.spouts[task] = (
                ShellSpoutTask(self, spec, context, instance)
                if isinstance(instance, ShellSpout)
                else SpoutTask(self, spec, context, instance)
            )
        elif isinstance(instance, Bolt):
            if isinstance(instance, StatefulBolt):
                instance.state = state_of(component, task)
            self.bolts[task] = self._new_bolt(spec, context, instance)
            interval = value_of("topology.tick.tuple.freq.secs", spec.config)
            if interval:
                self._repeat(float(interval), partial(self._tick, self.bolts[task], float(interval)))

    def _new_bolt(self, spec: ComponentSpec, context: TaskContext, instance: Bolt) -> BoltTask:
        held = None
        if self._held_of is not None and holds_state(self.plan, context.component):
            max_fails = value_of("topology.max.fails", self.plan.config)
            state = self._held_of(context.component, context.task)
            held = HeldTuples(self.plan, state, max_fails)
        if isinstance(instance, BatchingBolt) and held is not None:
            return HoldingTask(self, spec, context, instance, held)
        if not isinstance(instance, WindowedBolt):
            return self._new_plain_bolt(spec, context, instance)
        task = WindowTask(self, spec, context, instance, held)
        if task.windowing.interval_seconds is not None:
            self._repeat(task.windowing.interval_seconds, task.run_windows)
        return task

    def _new_plain_bolt(self, spec: ComponentSpec, context: TaskContext, instance: Bolt) -> BoltTask:
        if isinstance(instance, ShellBolt):
            return ShellBoltTask(self, spec, context, instance)
        executors = value_of("topology.executors", spec.config)
        if executors:
            thread = self._elsewhere.thread_of(context.component, executors, context.task_index)
            return ThreadedTask(self, spec, context, instance, thread)
        if instance.is_async():
            return AsyncTask(self, spec, context, instance, self._elsewhere.loop())
        return BoltTask(self, spec, context, instance)

    def _repeat(self, interval: float, work: Callable[[], object]) -> None:
        self._timers.append(_Timer(interval, work, self.now() + interval))

    def _tick(self, bolt: BoltTask, interval: float) -> None:
        tick = Tuple([interval], _TICK_POSITIONS, SYSTEM_COMPONENT, TICK_STREAM, SYSTEM_TASK)
        self.queue.append((bolt, tick))

    # Life

    def open(self) -> None:
        """Set up every task: bolts before spouts, so that no tuple comes before its receiver is ready."""
        for bolt in self.bolts.values():
            bolt.open()
        for spout in self.spouts.values():
            spout.open()

    def activate(self) -> None:
        self.active = True
        for spout in self.spouts.values():
            spout.guarded(spout.instance.activate)

    def deactivate(self) -> None:
        self.active = False
        for spout in self.spouts.values():
            spout.guarded(spout.instance.deactivate)

    def close(self) -> None:
        for spout in self.spouts.values():
            spout.close(spout.instance.close)
        for bolt in self.bolts.values():
            bolt.close(bolt.instance.cleanup)
        self._elsewhere.close()

    # Running

    def deliver(self, task: int, tup: Tuple) -> None:
        """Queue a tuple for a task of this worker."""
        self.queue.append((self.bolts[task], tup))

    def run_queue(self) -> int:
        """Process every tuple that waits, and those that follow from them; returns how many there were."""
        queue, count = self.queue, 0
        if not self.ended.empty():
            self._finish_ended()
        while queue:
            # The watchdog looks at it from its own thread.
            self.executing = item = queue.popleft()
            item[0].execute(item[1])
            count += 1
        self.executing = None
        return count

    def finish(self, *, drops: bool = False) -> None:
        """Wait until no bolt runs outside the loop and no tuple waits; with `drops` forget what they did."""
        while self.calls:
            self.ended.get().carry_out(drops=drops)
            self._finish_ended(drops=drops)
            if not drops:
                self.run_queue()

    def _finish_ended(self, *, drops: bool = False) -> None:
        with contextlib.suppress(Empty):
            while True:
                self.ended.get_nowait().carry_out(drops=drops)

    def abort(self, reason: str) -> None:
        self.abort_reason = reason

    def reset(self) -> None:
        """The transaction is aborted: forget every tuple that is under way."""
        self.finish(drops=True)
        self.queue.clear()
        self.abort_reason = None
        for bolt in self.bolts.values():
            bolt.reset()

    def before_commit(self) -> None:
        for bolt in self.bolts.values():
            bolt.before_commit()

    def holders(self) -> list[str]:
        """The components that keep tuples without acking them."""
        return sorted({bolt.context.component for bolt in self.bolts.values() if bolt.unended})

    @property
    def has_own_spouts(self) -> bool:
        """Whether this worker runs spouts that the user wrote."""
        return any(not isinstance(spout.instance, LogSpout) for spout in self.spouts.values())

    def run_timers(self) -> None:
        """Queue the ticks that are due, process due windows, and fail the trees whose time is over."""
        now = self.now()
        for timer in self._timers:
            timer.fire(now)
        self.acker.expire()

    def restart_timers(self) -> None:
        """Let every interval begin now: the clock was not known before."""
        for timer in self._timers:
            timer.restart(self.now())

    def next_timer(self) -> float | None:
        """When `run_timers` has something to do next."""
        moments = [timer.due for timer in self._timers]
        if self.acker.next_deadline is not None:
            moments.append(self.acker.next_deadline)
        return min(moments, default=None)

    def ask_spouts(self) -> bool:
        """Call every spout once that may emit; returns whether one emitted."""
        emitted = False
        if self.active:
            for spout in self.spouts.values():
                if spout.context.component not in self.held_back:
                    self.executing = (spout, None)
                    emitted |= spout.ask()
            self.executing = None
        return emitted

    def emit_record(self, spout: int, values: Sequence[Any], unit: Unit) -> None:
        """Emit a record of the log for a log spout's task."""
        self.spouts[spout].emit_record(values, unit)

    # Trees

    def new_root(self) -> int:
        """The id of a new tree. It holds the number of this worker, whose acker tracks the tree."""
        return self.worker << WORKER_SHIFT | new_id(WORKER_SHIFT)

    def begin_tree(self, root: int, edges: int, task: int, message_id: object) -> None:
        self.acker.begin(root, edges, task, message_id)

    def send_ack(self, root: int, edges: int) -> None:
        """Report an acked tuple to the acker of its tree."""
        worker = root >> WORKER_SHIFT
        if worker == self.worker:
            self.acker.ack(root, edges)
        else:
            self.outlet.send_ack(worker, root, edges)

    def send_fail(self, root: int, reason: str) -> None:
        worker = root >> WORKER_SHIFT
        if worker == self.worker:
            self.acker.fail(root, reason)
        else:
            self.outlet.send_fail(worker, root, reason)

    def send_reset(self, root: int) -> None:
        worker = root >> WORKER_SHIFT
        if worker == self.worker:
            self.acker.reset_timeout(root)
        else:
            self.outlet.send_reset(worker, root)

    def _tree_done(self, tree: Tree, seconds: float) -> None:
        self.spouts[tree.task].acked(tree.message_id, seconds)

    def _tree_failed(self, tree: Tree, reason: str) -> None:
        self.spouts[tree.task].failed(tree.message_id, reason)


class _Timer:
    """Work that repeats."""

    __slots__ = ("_interval", "_work", "due")

    def __init__(self, interval: float, work: Callable[[], object], due: float) -> None:
        self._interval = interval
        self._work = work
        self.due = due

    def restart(self, now: float) -> None:
        self.due = now + self._interval

    def fire(self, now: float) -> None:
        if now >= self.due:
            # A worker that was busy for several intervals does the work once for all of them.
            self.due = max(self.due + self._interval, now)
            self._work()
