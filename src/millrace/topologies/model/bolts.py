"""Bolts: the components that process tuples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

from millrace.topologies.model.component import Component, TaskContext
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.streams import DEFAULT_STREAM
from millrace.topologies.model.tuples import Tuple


class Bolt(Component):
    """Processes tuples, one at a time.

    By default a bolt is a basic one: what it emits is anchored to the tuple being processed, which is acked
    when `process` returns and failed when it raises. A rich bolt sets `auto_anchor`, `auto_ack` and
    `auto_fail` to False and does all of it itself, also later.
    """

    auto_anchor: ClassVar[bool] = True
    auto_ack: ClassVar[bool] = True
    auto_fail: ClassVar[bool] = True

    holds_tuples: ClassVar[bool] = False
    """Whether tuples stay with the bolt after `process`, which then acks or fails them later."""

    @property
    def current(self) -> Tuple | None:
        """The tuple being processed."""
        return self.collector.current

    def initialize(self, conf: dict[str, Any], context: TaskContext) -> None:
        """Set up this instance on its worker: connections, caches, everything that cannot be serialised."""
        self.prepare(conf, context)

    def prepare(self, conf: dict[str, Any], context: TaskContext) -> None:
        """Set up this instance on its worker. Storm's name for `initialize`."""

    def process(self, tup: Tuple) -> Any:
        """Process a tuple. It may be an async function, for calls that wait for something outside."""
        raise NotImplementedError

    def process_tick(self, tup: Tuple) -> None:
        """Called each `topology.tick.tuple.freq.secs` of this component."""

    def cleanup(self) -> None:
        """The topology stops. Not promised: a worker may be killed."""

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = DEFAULT_STREAM,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit values; with `need_task_ids` returns the tasks that receive them."""
        collector = self.collector
        if anchors is None and self.auto_anchor and (current := collector.current) is not None:
            anchors = (current,)
        tasks = collector.emit(tup, stream=stream, anchors=anchors, direct_task=direct_task, message_id=None)
        return tasks if need_task_ids else None

    def ack(self, tup: Tuple) -> None:
        """A tuple is done. Every tuple must be acked or failed once."""
        self.collector.ack(tup)

    def fail(self, tup: Tuple) -> None:
        """A tuple cannot be processed: its source delivers it again, and at last gives it up."""
        self.collector.fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """A tuple takes long, but is being worked on: its time-out begins again."""
        self.collector.reset_timeout(tup)

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        return tup.is_tick

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        if not spec.inputs:
            raise TopologyError(f"the bolt {label} has no inputs; write inputs=[other] in its spec")
        if value_of("topology.executors", spec.config):
            if cls.holds_tuples:
                raise TopologyError(f"{label} holds tuples, so it runs in the worker's loop; drop executors=")
            if cls.is_async():
                raise TopologyError(f"{label} has an async process, which needs no threads; drop executors=")

    @classmethod
    def is_async(cls) -> bool:
        """Whether `process` is an async function."""
        return inspect.iscoroutinefunction(cls.process)


class RichBolt(Bolt):
    """A bolt that anchors, acks and fails by itself."""

    auto_anchor = False
    auto_ack = False
    auto_fail = False


class BatchingBolt(Bolt):
    """Collects tuples and processes them in groups, at every tick."""

    ticks_between_batches: ClassVar[int] = 1
    holds_tuples = True
    config: ClassVar[Mapping[str, Any]] = {"topology.tick.tuple.freq.secs": 1}

    def __init__(self) -> None:
        self._batches: dict[Any, list[Tuple]] = {}
        self._batch: list[Tuple] = []
        self._ticks = 0

    def group_key(self, tup: Tuple) -> Any:
        """The group that a tuple belongs to; one group for all by default."""
        return None

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        """Process the tuples of one group."""
        raise NotImplementedError

    def process(self, tup: Tuple) -> None:
        self._batches.setdefault(self.group_key(tup), []).append(tup)

    def process_tick(self, tup: Tuple) -> None:
        self._ticks += 1
        if self._ticks >= self.ticks_between_batches:
            self._ticks = 0
            self.process_batches()

    def forget(self) -> None:
        """Drop the tuples that wait: the runtime delivers them again."""
        self._batches.clear()

    def process_batches(self) -> None:
        batches, self._batches = self._batches, {}
        for key, tups in batches.items():
            self._process_group(key, tups)

    def _process_group(self, key: Any, tups: list[Tuple]) -> None:
        # What is emitted now is anchored to the whole group.
        self._batch = tups
        try:
            self.process_batch(key, tups)
        except Exception as error:
            self.raise_exception(error)
            for tup in tups:
                self.collector.fail(tup)
        else:
            for tup in tups:
                self.collector.ack(tup)
        finally:
            self._batch = []

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = DEFAULT_STREAM,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if anchors is None and self.auto_anchor and self._batch:
            anchors = self._batch
        return super().emit(tup, stream, anchors, direct_task, need_task_ids)


class StatefulBolt(Bolt):
    """A bolt with a key-value state that survives crashes, kills and rebalances.

    Each task has a state of its own: use a fields grouping, so that a key always comes to the same task.
    """

    state: MutableMapping[Any, Any]
    """The state of this task; set before `initialize`."""

    def init_state(self, state: MutableMapping[Any, Any]) -> None:
        """The state is restored, and no tuple has come yet."""

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        if cls.is_async():
            raise TopologyError(
                f"{label} has state and an async process: tuples would overtake each other and overwrite "
                "each other's state; write a plain process, with executors=N if it blocks"
            )
