"""Spouts: the sources of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from millrace.topologies.model.component import Component, TaskContext
from millrace.topologies.model.streams import DEFAULT_STREAM


class Spout(Component):
    """A source of tuples.

    `next_tuple` is called again and again on one thread, together with `ack` and `fail`: it must not block. A
    tuple that is emitted with a message id is tracked: `ack` is called when every tuple that descends from it
    is done, `fail` when one has failed or `topology.message.timeout.secs` have passed.
    """

    def initialize(self, conf: dict[str, Any], context: TaskContext) -> None:
        """Set up this instance on its worker. Storm's `open`."""
        self.open(conf, context)

    def open(self, conf: dict[str, Any], context: TaskContext) -> None:
        """Set up this instance on its worker."""

    def next_tuple(self) -> None:
        """Emit the next tuple, or return if there is none now."""
        raise NotImplementedError

    def ack(self, tup_id: Any) -> None:
        """The tuple that was emitted with this id is done."""

    def fail(self, tup_id: Any) -> None:
        """The tuple that was emitted with this id failed or timed out. Emit it again, or give it up."""

    def activate(self) -> None:
        """The topology runs, or runs again."""

    def deactivate(self) -> None:
        """The topology pauses: `next_tuple` is not called until `activate`."""

    def close(self) -> None:
        """The topology stops. Not promised: a worker may be killed."""

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit values; with `need_task_ids` returns the tasks that receive them."""
        tasks = self.collector.emit(
            tup, stream=stream, anchors=None, direct_task=direct_task, message_id=tup_id
        )
        return tasks if need_task_ids else None


class ReliableSpout(Spout):
    """A spout that emits a failed tuple again, up to `max_fails` times, then to the dead-letter topic."""

    max_fails: ClassVar[int] = 3

    def __init__(self) -> None:
        self.unacked_tuples: dict[Any, tuple[Sequence[Any], str, int | None]] = {}
        self.failed_tuples: dict[Any, int] = {}

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = DEFAULT_STREAM,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if tup_id is not None:
            self.unacked_tuples[tup_id] = (tup, stream, direct_task)
        return super().emit(tup, tup_id, stream, direct_task, need_task_ids)

    def ack(self, tup_id: Any) -> None:
        self.failed_tuples.pop(tup_id, None)
        self.unacked_tuples.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        emitted = self.unacked_tuples.get(tup_id)
        if emitted is None:
            return
        fails = self.failed_tuples.get(tup_id, 0) + 1
        values, stream, direct_task = emitted
        if fails > self.max_fails:
            self.give_up(tup_id, values, stream)
            self.ack(tup_id)
            return
        self.failed_tuples[tup_id] = fails
        super().emit(values, tup_id, stream, direct_task)

    def give_up(self, tup_id: Any, values: Sequence[Any], stream: str) -> None:
        """The tuple failed more than `max_fails` times: it goes to the dead-letter topic."""
        self.collector.dead_letter(values, stream, f"failed {self.max_fails + 1} times")
