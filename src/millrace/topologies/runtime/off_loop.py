"""Bolts that run outside the worker's loop: in threads (`executors=N`), or as async functions.

Only `process` and the other methods of the instance run there. What it emits, acks and reports is noted, and
carried out by the loop when the call has ended, so everything below needs no locks.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from millrace.topologies.model.bolts import Bolt, StatefulBolt
from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.tuples import TICK_STREAM, Tuple
from millrace.topologies.runtime.tasks import BoltTask, Host

START_SECONDS = 60.0

_running: ContextVar[Call | None] = ContextVar("running", default=None)


class Call:
    """One call of a bolt: its tuple, and everything that it did."""

    __slots__ = ("actions", "began", "error", "is_running", "seconds", "task", "tup")

    def __init__(self, task: OffLoopTask, tup: Tuple) -> None:
        self.task = task
        self.tup = tup
        self.began = perf_counter()
        self.is_running = False
        self.seconds = 0.0
        self.actions: list[Callable[[], object]] = []
        self.error: Exception | None = None

    def carry_out(self, *, drops: bool) -> None:
        """On the loop: do what the call did, or forget it after an abort."""
        del self.task.engine.calls[id(self)]
        if drops:
            self.forget()
        self.task.finish(self)

    def begin(self) -> None:
        """The bolt begins with the tuple now."""
        _running.set(self)
        self.began = perf_counter()
        self.is_running = True

    def forget(self) -> None:
        """The transaction was aborted: nothing of what the call did counts."""
        self.actions.clear()
        self.error = None
        self.tup.units, self.tup.edges = (), None

    def end(self, error: Exception | None) -> None:
        """The call is over; the loop carries out what it did."""
        self.error = error
        self.seconds = perf_counter() - self.began
        self.is_running = False
        self.task.engine.ended.put(self)


class OffLoopTask(BoltTask):
    """A task whose instance runs elsewhere."""

    def execute(self, tup: Tuple) -> None:
        call = Call(self, tup)
        tup.received = call.began
        self.engine.calls[id(call)] = call
        self._start(call)

    @abstractmethod
    def _start(self, call: Call) -> None: ...

    @abstractmethod
    def _run_there(self, step: Callable[[], object]) -> None:
        """Run a step of the instance where its calls run, and wait for it."""

    def open(self) -> None:
        self._run_there(super().open)

    def close(self, step: Callable[[], object]) -> None:
        super().close(lambda: self._run_there(step))

    # On the loop

    def finish(self, call: Call) -> None:
        """Carry out everything that a call did."""
        tup = call.tup
        for action in call.actions:
            action()
        if call.error is not None:
            super().report_error(call.error)
        if tup.stream == TICK_STREAM:
            return
        stats = self.stats.of((tup.component, tup.stream))
        stats.executed += 1
        stats.execute_seconds += call.seconds
        if tup.done:
            return
        if call.error is not None:
            if self._fails:
                self._end(tup, f"{type(call.error).__name__}: {call.error}")
        elif self._acks:
            super().ack(tup)

    # Called by the instance, elsewhere

    @property
    def current(self) -> Tuple | None:
        call = _running.get()
        return None if call is None or call.tup.is_tick else call.tup

    def _note(self, action: Callable[[], object]) -> None:
        call = _running.get()
        if call is None or call.task is not self:
            raise TopologyError(
                f"{self.context.component} emits, acks or fails from a thread of its own; only the call of "
                "process may: hand the values over in a queue, and emit them in process or process_tick"
            )
        call.actions.append(action)

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]:
        """Emit when the call has ended; the receiving tasks are not known before."""
        self._declared(values, stream)
        emit = super().emit
        self._note(
            lambda: emit(
                values, stream=stream, anchors=anchors, direct_task=direct_task, message_id=message_id
            )
        )
        return []

    def ack(self, tup: Tuple) -> None:
        ack = super().ack
        self._note(lambda: ack(tup))

    def fail(self, tup: Tuple) -> None:
        fail = super().fail
        self._note(lambda: fail(tup))

    def reset_timeout(self, tup: Tuple) -> None:
        reset = super().reset_timeout
        self._note(lambda: reset(tup))

    def count(self, name: str, value: float) -> None:
        count = super().count
        self._note(lambda: count(name, value))

    def report_error(self, error: BaseException | str) -> None:
        if threading.get_ident() == self.engine.thread:
            super().report_error(error)
            return
        report = super().report_error
        self._note(lambda: report(error))


class ThreadedTask(OffLoopTask):
    """A task that one thread runs, in the order of its tuples."""

    def __init__(
        self,
        engine: Host,
        spec: ComponentSpec,
        context: TaskContext,
        instance: Bolt,
        thread: ThreadPoolExecutor,
    ) -> None:
        super().__init__(engine, spec, context, instance)
        self._thread = thread

    def _start(self, call: Call) -> None:
        self._thread.submit(self._run, call)

    def _run(self, call: Call) -> None:
        call.begin()
        error: Exception | None = None
        try:
            if call.tup.is_tick:
                self.instance.process_tick(call.tup)
            else:
                self._process(call.tup)
        except Exception as raised:
            error = raised
        finally:
            _running.set(None)
            call.end(error)

    def _run_there(self, step: Callable[[], object]) -> None:
        self._thread.submit(step).result()


class AsyncTask(OffLoopTask):
    """A task with an async `process`: many of its tuples are under way at a time, in any order."""

    def __init__(
        self,
        engine: Host,
        spec: ComponentSpec,
        context: TaskContext,
        instance: Bolt,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(engine, spec, context, instance)
        assert not isinstance(instance, StatefulBolt), "checked when the topology was built"
        self._loop = loop
        self._limit = value_of("topology.async.max.pending", spec.config, engine.plan.config)
        self._under_way = 0
        self._waiting: deque[Call] = deque()

    def _start(self, call: Call) -> None:
        if self._under_way >= self._limit:
            self._waiting.append(call)
            return
        self._under_way += 1
        asyncio.run_coroutine_threadsafe(self._run(call), self._loop)

    async def _run(self, call: Call) -> None:
        call.begin()
        error: Exception | None = None
        try:
            if call.tup.is_tick:
                self.instance.process_tick(call.tup)
            else:
                await self.instance.process(call.tup)
        except Exception as raised:
            error = raised
        finally:
            call.end(error)

    def finish(self, call: Call) -> None:
        self._under_way -= 1
        if self._waiting:
            self._start(self._waiting.popleft())
        super().finish(call)

    def _run_there(self, step: Callable[[], object]) -> None:
        async def run() -> None:
            step()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_SECONDS)


class Elsewhere:
    """The threads of one worker beside its loop, made at first use."""

    def __init__(self) -> None:
        self._threads: dict[str, list[ThreadPoolExecutor]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def thread_of(self, component: str, executors: int, index: int) -> ThreadPoolExecutor:
        """The thread of a task: the tasks of a component share its executors evenly."""
        threads = self._threads.setdefault(component, [])
        if len(threads) < executors:
            threads.append(ThreadPoolExecutor(1, thread_name_prefix=f"{component}-{len(threads)}"))
            return threads[-1]
        return threads[index % executors]

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="async-bolts", daemon=True).start()
        return self._loop

    def close(self) -> None:
        for threads in self._threads.values():
            for thread in threads:
                thread.shutdown(wait=False, cancel_futures=True)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
