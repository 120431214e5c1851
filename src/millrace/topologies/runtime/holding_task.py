"""Tasks of batching bolts in exactly-once mode."""

from __future__ import annotations

from millrace.topologies.model.bolts import BatchingBolt
from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime.held import HeldTuples
from millrace.topologies.runtime.tasks import BoltTask, Host


class HoldingTask(BoltTask):
    """A task whose tuples are state from their receipt until they are acked.

    A batch that fails aborts the transaction: what it emitted is undone, and its tuples are batched again.
    """

    def __init__(
        self,
        engine: Host,
        spec: ComponentSpec,
        context: TaskContext,
        instance: BatchingBolt,
        held: HeldTuples,
    ) -> None:
        super().__init__(engine, spec, context, instance)
        self._bolt = instance
        self._held = held
        self._process = self._hold

    def open(self) -> None:
        super().open()
        self.reset()

    def _hold(self, tup: Tuple) -> None:
        self._held.add(tup)
        self._bolt.process(tup)

    def reset(self) -> None:
        """Batch the tuples of the state again, after a restart or an abort."""
        self._bolt.forget()
        for held in self._held.restore():
            self._bolt.process(held.tup)
        for tup in self._held.given_up():
            self.give_up(tup, "a batch that held it failed")

    def ack(self, tup: Tuple) -> None:
        super().ack(tup)
        self._held.remove(tup)

    def _end(self, tup: Tuple, reason: str) -> None:
        self._held.note_failure(tup)
        self.engine.abort(f"{self.context.component}: {reason}")
