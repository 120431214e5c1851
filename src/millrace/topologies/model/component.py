"""The common parts of spouts and bolts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec, Inputs, make_spec
from millrace.topologies.model.streams import DEFAULT_STREAM
from millrace.topologies.model.tuples import Tuple


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The task and worker that run an instance."""

    topology: str
    component: str
    task: int
    """The number of this task within the topology."""
    task_index: int
    """The number of this task among those of its component, from 0."""
    tasks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The tasks of every component, in ascending order."""
    worker: int = 0
    directory: str = ""
    """The directory of the topology's file on this machine, with the data files that were shipped with it."""
    bootstrap: str = ""
    """The brokers of the log; empty in a test without a log."""


class Collector(Protocol):
    """The runtime as an instance sees it. It belongs to the thread that runs the instance."""

    @property
    def current(self) -> Tuple | None:
        """The tuple being processed."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        message_id: object,
    ) -> list[int]: ...

    def ack(self, tup: Tuple) -> None: ...

    def fail(self, tup: Tuple) -> None: ...

    def reset_timeout(self, tup: Tuple) -> None: ...

    def report_error(self, error: BaseException | str) -> None: ...

    def count(self, name: str, value: float) -> None: ...

    def dead_letter(self, values: Sequence[Any], stream: str, reason: str) -> None: ...


class Component:
    """A spout or a bolt. Each task has an instance of its own, made and used by one thread of one worker."""

    outputs: ClassVar[Sequence[Any]] = ()
    """The fields of the default stream, or a list of `Stream`."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of this component, such as {"topology.tick.tuple.freq.secs": 10}."""

    _collector: Collector | None = None
    context: TaskContext
    """The task and worker of this instance; set before `initialize`."""

    @classmethod
    def spec(
        cls,
        *arguments: Any,
        inputs: Inputs | None = None,
        par: int = 1,
        tasks: int | None = None,
        executors: int | None = None,
        outputs: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
        **keywords: Any,
    ) -> ComponentSpec:
        """This component as a part of a topology. Other arguments go to the constructor of each instance.

        With `executors=N`, N threads of each worker run the component's tasks, for calls that block.
        """
        if executors is not None:
            config = {**(config or {}), "topology.executors": executors}
        return make_spec(
            cls,
            arguments,
            keywords,
            inputs=inputs,
            par=par,
            tasks=tasks,
            outputs=outputs,
            config=config,
            name=name,
        )

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        """Raise TopologyError if a spec of this class lacks something. Called when the topology is built."""

    # The runtime's side

    def attach(self, collector: Collector, context: TaskContext) -> None:
        """Connect the instance to the runtime. Called once, before `initialize`."""
        self._collector = collector
        self.context = context

    def detach(self) -> None:
        """End the connection: emits after it are errors."""
        self._collector = None

    @property
    def collector(self) -> Collector:
        if self._collector is None:
            raise TopologyError(
                f"{type(self).__name__} emits, acks or fails while it is not running: "
                "before initialize, after close, or in its constructor"
            )
        return self._collector

    # What users call

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger(f"topology.{self.context.topology}.{self.context.component}")

    def log(self, message: str, level: int | str = logging.INFO) -> None:
        self.logger.log(logging.getLevelName(level.upper()) if isinstance(level, str) else level, message)

    def report_metric(self, name: str, value: float) -> None:
        """Add to a metric of this component."""
        self.collector.count(name, value)

    def raise_exception(self, error: BaseException | str) -> None:
        """Report an error, as the last error of this component, without stopping."""
        self.collector.report_error(error)

    report_error = raise_exception


__all__ = ["DEFAULT_STREAM", "Collector", "Component", "TaskContext"]
