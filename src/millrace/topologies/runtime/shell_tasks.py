"""Tasks of components in other languages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.shell import ShellBolt, ShellSpout
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.tuples import TICK_STREAM, Tuple
from millrace.topologies.runtime.multilang import Program, log_level, resolved
from millrace.topologies.runtime.tasks import BoltTask, Host, SpoutTask

SYNC_SECONDS = 0.005


class Pending:
    """A tuple that a program has not acked or failed yet."""

    __slots__ = ("began", "is_running", "task", "tup")

    def __init__(self, task: ShellBoltTask, tup: Tuple) -> None:
        self.task = task
        self.tup = tup
        self.began = perf_counter()
        # A program may take its time: the watchdog leaves it alone.
        self.is_running = False


class Message:
    """A message of a program, on its way to the loop."""

    __slots__ = ("_content", "_task")

    def __init__(self, task: ShellBoltTask, content: Any) -> None:
        self._task = task
        self._content = content

    def carry_out(self, *, drops: bool) -> None:
        self._task.handle(self._content, drops=drops)


class ShellBoltTask(BoltTask):
    """A task of a bolt that is a program."""

    def __init__(self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: ShellBolt) -> None:
        super().__init__(engine, spec, context, instance)
        self._limit = value_of("topology.shellbolt.max.pending", spec.config, engine.plan.config)
        self._pending: dict[str, Pending] = {}
        self._waiting: deque[tuple[str, Tuple]] = deque()
        self._sent = 0
        self._number = 0
        self._program = Program(
            resolved(instance.command, context.directory),
            context,
            received=lambda content: engine.ended.put(Message(self, content)),
        )

    def open(self) -> None:
        super().open()
        self._program.start(self.engine.plan, self.context, self._conf)

    def close(self, step: Callable[[], object]) -> None:
        self._program.close()
        super().close(step)

    def execute(self, tup: Tuple) -> None:
        self._number += 1
        name = str(self._number)
        tup.received = perf_counter()
        if tup.stream != TICK_STREAM:
            pending = self._pending[name] = Pending(self, tup)
            self.engine.calls[id(pending)] = pending
        self._waiting.append((name, tup))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._sent < self._limit:
            name, tup = self._waiting.popleft()
            self._sent += name in self._pending
            self._program.send(
                {
                    "id": name,
                    "comp": tup.component,
                    "stream": tup.stream,
                    "task": tup.task,
                    "tuple": list(tup.values),
                }
            )

    # On the loop: what the program says

    def handle(self, content: Any, *, drops: bool) -> None:
        if isinstance(content, TopologyError):
            raise content
        match content.get("command"):
            case "ack" | "fail" as outcome:
                self._finish(str(content.get("id")), acked=outcome == "ack", drops=drops)
            case "emit":
                if not drops:
                    self._emit(content)
            case "log":
                self.instance.log(str(content.get("msg")), log_level(content))
            case "error":
                self.report_error(str(content.get("msg")))
            case "metrics":
                self.count(str(content.get("name")), float(content.get("params") or 0))
            case "sync":
                pass
            case other:
                self.report_error(f"the program sent the command {other!r}, which does not exist")

    def _finish(self, name: str, *, acked: bool, drops: bool) -> None:
        pending = self._pending.pop(name, None)
        if pending is None:
            self.report_error(f"the program acks or fails the tuple {name}, which it does not have")
            return
        self._sent -= 1
        del self.engine.calls[id(pending)]
        tup = pending.tup
        if not drops:
            stats = self.stats.of((tup.component, tup.stream))
            stats.executed += 1
            stats.execute_seconds += perf_counter() - pending.began
            if acked:
                self.ack(tup)
            else:
                self._end(tup, "the program failed it")
        self._send_waiting()

    def _emit(self, content: dict[str, Any]) -> None:
        anchors = [
            self._pending[name].tup
            for name in map(str, content.get("anchors") or ())
            if name in self._pending
        ]
        direct = content.get("task")
        try:
            tasks = self.emit(
                content.get("tuple") or [],
                stream=content.get("stream") or "default",
                anchors=anchors,
                direct_task=direct,
                message_id=None,
            )
        except TopologyError as error:
            self.report_error(error)
            for anchor in anchors:
                if not anchor.done:
                    self._end(anchor, str(error))
            tasks = []
        if direct is None and content.get("need_task_ids", True):
            self._program.send(tasks)

    def ack(self, tup: Tuple) -> None:
        # One that was failed for a wrong emit is acked by the program all the same.
        if not tup.done:
            super().ack(tup)


class ShellSpoutTask(SpoutTask):
    """A task of a spout that is a program: asked for tuples when it has answered the question before."""

    def __init__(self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: ShellSpout) -> None:
        super().__init__(engine, spec, context, instance)
        self._received: SimpleQueue[Any] = SimpleQueue()
        self.is_waiting = False
        self._program = Program(
            resolved(instance.command, context.directory), context, received=self._received.put
        )

    def open(self) -> None:
        super().open()
        self._program.start(self.engine.plan, self.context, self._conf)

    def close(self, step: Callable[[], object]) -> None:
        self._program.close()
        super().close(step)

    def ask(self) -> bool:
        self._emitted = False
        self._drain()
        if not self.is_waiting and not (self._max_pending is not None and self.pending >= self._max_pending):
            self._command({"command": "next"})
            self._drain()
        return self._emitted

    def acked(self, message_id: object, seconds: float, *, tracked: bool = True) -> None:
        super().acked(message_id, seconds, tracked=tracked)
        self._command({"command": "ack", "id": message_id})

    def failed(self, message_id: object, reason: str) -> None:
        super().failed(message_id, reason)
        self._command({"command": "fail", "id": message_id})

    _unanswered = 0

    def _command(self, message: Any) -> None:
        self._unanswered += 1
        self.is_waiting = True
        self._program.send(message)

    def _drain(self) -> None:
        """Carry out what the program has said, and wait a moment for the rest of its answer."""
        while self.is_waiting:
            try:
                content = self._received.get(timeout=SYNC_SECONDS)
            except Empty:
                return
            if isinstance(content, TopologyError):
                raise content
            self._handle(content)

    def _handle(self, content: dict[str, Any]) -> None:
        match content.get("command"):
            case "sync":
                self._unanswered -= 1
                self.is_waiting = self._unanswered > 0
            case "emit":
                self._emit(content)
            case "log":
                self.instance.log(str(content.get("msg")), log_level(content))
            case "error":
                self.report_error(str(content.get("msg")))
            case "metrics":
                self.count(str(content.get("name")), float(content.get("params") or 0))
            case other:
                self.report_error(f"the program sent the command {other!r}, which does not exist")

    def _emit(self, content: dict[str, Any]) -> None:
        direct = content.get("task")
        try:
            tasks = self.emit(
                content.get("tuple") or [],
                stream=content.get("stream") or "default",
                anchors=None,
                direct_task=direct,
                message_id=content.get("id"),
            )
        except TopologyError as error:
            self.report_error(error)
            tasks = []
        if direct is None and content.get("need_task_ids", True):
            self._program.send(tasks)
