"""Tasks of windowed bolts."""

from __future__ import annotations

import logging

from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.model.windows import TupleWindow, WindowedBolt
from millrace.topologies.runtime.held import HeldTuples
from millrace.topologies.runtime.tasks import BoltTask, Host
from millrace.topologies.runtime.windowing import Windowing

logger = logging.getLogger(__name__)


class WindowTask(BoltTask):
    """A task of a windowed bolt: tuples wait for their windows, and are acked when they have left them.

    With `held`, in exactly-once mode, they are state while they wait. A window that fails then aborts the
    transaction: what it emitted is undone, and it is processed again.
    """

    def __init__(
        self,
        engine: Host,
        spec: ComponentSpec,
        context: TaskContext,
        instance: WindowedBolt,
        held: HeldTuples | None = None,
    ) -> None:
        super().__init__(engine, spec, context, instance)
        self._bolt = instance
        self._held = held
        self._late_stream = instance.window_of().late_stream
        self.windowing = self._new_windowing()
        self._process = self._add
        self._failing: set[int] = set()

    def _new_windowing(self) -> Windowing:
        edges = self.engine.plan.edges_to(self.context.component)
        return Windowing(
            self._bolt.window_of(),
            [(edge.source, edge.stream.name) for edge in edges],
            run=self._run_window,
            expired=self._end_all,
            late=self._late,
        )

    def open(self) -> None:
        super().open()
        if self._held is not None:
            self.reset()

    def reset(self) -> None:
        """Begin again with the tuples of the state, after a restart or an abort."""
        super().reset()
        self.windowing = self._new_windowing()
        if self._held is None:
            return
        held = list(self._held.restore())
        self.windowing.restore(self._held.notes, {item.number: (item.timestamp, item.tup) for item in held})
        for tup in self._held.given_up():
            self.give_up(tup, "a window that held it failed")

    def before_commit(self) -> None:
        if self._held is not None and self.windowing.changed:
            self._held.notes = self.windowing.notes(self._held.number_of)
            self.windowing.changed = False

    def _add(self, tup: Tuple) -> None:
        now_ms = round(self.engine.now() * 1000)
        if self._held is not None:
            self._held.add(tup, self.windowing.timestamp_of(tup, now_ms))
        self.windowing.add(tup, now_ms)

    def run_windows(self) -> None:
        """Time has passed."""
        self.engine.executing = (self, None)
        self.windowing.tick(round(self.engine.now() * 1000))
        self.engine.executing = None

    def _run_window(self, window: TupleWindow) -> None:
        current, self._current = self._current, None
        try:
            if self.guarded(self._bolt.run_window, window):
                return
        finally:
            self._current = current
        if self._held is None:
            self._failing |= {id(tup) for tup in window}
        else:
            for tup in window:
                self._held.note_failure(tup)
            self.engine.abort(f"{self.context.component}: a window failed")

    def _end_all(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            if id(tup) in self._failing:
                self._failing.discard(id(tup))
                self._end(tup, "a window that held it failed")
            else:
                self.ack(tup)

    def ack(self, tup: Tuple) -> None:
        super().ack(tup)
        if self._held is not None and self.engine.abort_reason is None:
            self._held.remove(tup)

    def _late(self, tup: Tuple) -> None:
        if self._late_stream is None:
            logger.info("%s: a tuple came after its window: %r", self.context.component, tup)
        else:
            self.emit(
                [list(tup.values)],
                stream=self._late_stream,
                anchors=(tup,),
                direct_task=None,
                message_id=None,
            )
        self.ack(tup)
