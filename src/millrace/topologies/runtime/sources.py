"""The sources of a worker: records for its log spouts, frames for its bolts, acks for its spouts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.frames import Frames, Sent
from millrace.topologies.runtime.inputs import Place, Source, Unreadable
from millrace.topologies.runtime.output import Output
from millrace.topologies.runtime.records import record_values
from millrace.topologies.runtime.tasks import BoltTask, SpoutTask
from millrace.topologies.runtime.units import Unit

logger = logging.getLogger(__name__)


class Records:
    """A partition of a topic that a log spout reads."""

    is_internal = False

    def __init__(self, place: Place, task: SpoutTask, spout: LogSpout, output: Output) -> None:
        self.place = place
        self.component = task.context.component
        self.start = spout.start
        self._task = task
        self._format = spout.format
        self._output = output

    def split(self, message: Any) -> Sequence[Any]:
        try:
            values = record_values(
                self._format,
                message.topic(),
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
            )
        except ValueError as error:
            raise Unreadable(f"not {self._format}: {error}") from error
        return (values,)

    def deliver(self, part: Any, unit: Unit) -> None:
        self._task.emit_record(part, unit)

    def give_up(self, message: Any, part: Any, component: str, reason: str) -> None:
        self._output.give_up(message, component, reason)

    def done(self, unit: Unit) -> None:
        self._task.record_done(unit)


class EdgeFrames:
    """A partition of an edge topic: tuples that other workers sent to a task of a bolt."""

    start = "earliest"
    is_internal = True

    def __init__(self, place: Place, task: BoltTask, engine: Engine, frames: Frames, output: Output) -> None:
        self.place = place
        self.component = task.context.component
        self._task = task
        self._engine = engine
        self._frames = frames
        self._output = output
        self._components = engine.plan.components

    def split(self, message: Any) -> Sequence[Sent]:
        try:
            return self._frames.decode(message.value())
        except TopologyError as error:
            # Written by another program: it is no part of the stream.
            self._task.report_error(f"{message.topic()}-{message.partition()}@{message.offset()}: {error}")
            return ()

    def deliver(self, part: Sent, unit: Unit) -> None:
        stream = self._components[part.component].streams[part.stream]
        edges = None if part.edges is None else dict(part.edges)
        unit.pending += 1
        self._engine.queue.append(
            (
                self._task,
                Tuple(part.values, stream.positions, part.component, part.stream, part.task, edges, (unit,)),
            )
        )

    def give_up(self, message: Any, part: Sent, component: str, reason: str) -> None:
        stream = self._components[part.component].streams[part.stream]
        self._output.dead_letter(component, part.values, stream, reason)

    def done(self, unit: Unit) -> None:
        """The bolt counts its tuples itself."""


class AckFrames:
    """A partition of the ack topic: acks of other workers for the tuple trees of this one's spouts."""

    component = None
    is_internal = True
    # Acks of trees that an earlier worker began mean nothing to this one.
    start = "latest"

    def __init__(self, place: Place, engine: Engine, frames: Frames) -> None:
        self.place = place
        self._engine = engine
        self._frames = frames

    def split(self, message: Any) -> Sequence[bytes]:
        return (message.value(),)

    def deliver(self, part: bytes, unit: Unit) -> None:
        unit.pending += 1
        try:
            acks = self._frames.decode_acks(part)
        except TopologyError as error:
            logger.error("%s-%d: %s", *self.place, error)
        else:
            acker = self._engine.acker
            for root in acks.resets:
                acker.reset_timeout(root)
            for root, edges in acks.done.items():
                acker.ack(root, edges)
            for root, reason in acks.failed.items():
                acker.fail(root, reason)
        unit.release()

    def give_up(self, message: Any, part: bytes, component: str, reason: str) -> None:
        raise AssertionError("acks do not fail")

    def done(self, unit: Unit) -> None:
        """Acks are not counted."""


def sources_of(
    engine: Engine,
    frames: Frames,
    output: Output,
    *,
    workers: int,
    partitions_of: Callable[[LogSpout], Mapping[str, int]],
) -> list[Source]:
    """The partitions that a worker reads. `partitions_of` knows the topics of a log spout."""
    plan = engine.plan
    found: list[Source] = []
    for spout in engine.spouts.values():
        if isinstance(spout.instance, LogSpout):
            count = plan.components[spout.context.component].tasks
            found += [
                Records((topic, index), spout, spout.instance, output)
                for topic, partitions in partitions_of(spout.instance).items()
                for index in range(partitions)
                if index % count == spout.context.task_index
            ]
    for bolt in engine.bolts.values():
        # Also if all its senders are here now: under another placement frames may have been left for it.
        place = (topics.edge_topic(plan.name, bolt.context.component), bolt.context.task_index)
        found.append(EdgeFrames(place, bolt, engine, frames, output))
    if workers > 1 and engine.has_own_spouts:
        found.append(AckFrames((topics.ack_topic(plan.name), engine.worker), engine, frames))
    return found
