"""Tasks of windowed bolts."""

from __future__ import annotations

import logging

from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.model.windows import TupleWindow, WindowedBolt
from millrace.topologies.runtime.tasks import BoltTask, Host
from millrace.topologies.runtime.windowing import Windowing

logger = logging.getLogger(__name__)


class WindowTask(BoltTask):
    """A task of a windowed bolt: tuples wait for their windows, and are acked when they have left them."""

    def __init__(
        self, engine: Host, spec: ComponentSpec, context: TaskContext, instance: WindowedBolt
    ) -> None:
        super().__init__(engine, spec, context, instance)
        self._bolt = instance
        window = instance.window_of()
        edges = engine.plan.edges_to(context.component)
        self._late_stream = window.late_stream
        self.windowing = Windowing(
            window,
            [(edge.source, edge.stream.name) for edge in edges],
            run=self._run_window,
            expired=self._ack_all,
            late=self._late,
        )
        self._process = self._add
        self._failing: set[int] = set()

    def _add(self, tup: Tuple) -> None:
        self.windowing.add(tup, round(self.engine.now() * 1000))

    def run_windows(self) -> None:
        """Time has passed."""
        self.windowing.tick(round(self.engine.now() * 1000))

    def _run_window(self, window: TupleWindow) -> None:
        current, self._bolt.current = self._bolt.current, None
        try:
            if not self.guarded(self._bolt.run_window, window):
                self._failing |= {id(tup) for tup in window}
        finally:
            self._bolt.current = current

    def _ack_all(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            if id(tup) in self._failing:
                self._failing.discard(id(tup))
                self._end(tup, "a window that held it failed")
            else:
                self.ack(tup)

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
