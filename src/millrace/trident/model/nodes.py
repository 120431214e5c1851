"""The nodes of a topology's graph. Each knows its parents and the fields of its tuples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from millrace.pipelines.topics.declaration import LogTopic
from millrace.trident.model.fields import Output
from millrace.trident.model.windows import Window
from millrace.trident.operations.aggregators import AnyAggregator, CombinerAggregator, ReducerAggregator
from millrace.trident.operations.functions import AnyFilter, AnyFunction
from millrace.trident.operations.queries import QueryFunction, StateUpdater
from millrace.trident.state.declaration import StateSpec


@dataclass(frozen=True, eq=False)
class Node:
    """A node: its tuples have these fields, in this order."""

    fields: tuple[str, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A topic of the log."""

    name: str
    topic: LogTopic


@dataclass(frozen=True, eq=False)
class Request(Node):
    """The arguments of a DRPC call."""

    function: str


@dataclass(frozen=True, eq=False)
class Child(Node):
    """A node with one parent."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)


@dataclass(frozen=True, eq=False)
class Each(Child):
    """A function whose results are appended to the tuple, or replace it."""

    inputs: tuple[str, ...]
    function: AnyFunction
    outputs: tuple[Output, ...]
    replaces: bool = False
    is_flat: bool = False


@dataclass(frozen=True, eq=False)
class Keep(Child):
    """A filter."""

    inputs: tuple[str, ...]
    filter: AnyFilter


@dataclass(frozen=True, eq=False)
class Peek(Child):
    """A look at each tuple."""

    action: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Project(Child):
    """Some of the fields."""


@dataclass(frozen=True, eq=False)
class Repartition(Child):
    """Another distribution of the tuples over tasks."""

    how: Literal["shuffle", "by", "broadcast", "global"]
    by: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Aggregate:
    """An aggregator, its inputs and its outputs."""

    inputs: tuple[str, ...]
    aggregator: AnyAggregator
    outputs: tuple[Output, ...]


@dataclass(frozen=True, eq=False)
class Aggregated(Child):
    """Aggregates of each group, of the whole batch, or of each partition."""

    groups: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    scope: Literal["batch", "partition"] = "batch"


@dataclass(frozen=True, eq=False)
class Top(Child):
    """The first tuples of a batch in the order of a field."""

    by: str
    count: int
    descending: bool


@dataclass(frozen=True, eq=False)
class Merged(Node):
    """The tuples of several streams."""

    streams: tuple[Node, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.streams


@dataclass(frozen=True, eq=False)
class Joined(Node):
    """Tuples of several streams of a batch with equal keys. An outer stream may lack a tuple."""

    streams: tuple[Node, ...]
    keys: tuple[tuple[str, ...], ...]
    outer: tuple[bool, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.streams


@dataclass(frozen=True, eq=False)
class Windowed(Child):
    """Aggregates of windows that span batches."""

    window: Window
    state: StateSpec
    aggregate: Aggregate


@dataclass(frozen=True, eq=False)
class Queried(Child):
    """Results from a state, appended to the tuple."""

    state: StateSpec
    inputs: tuple[str, ...]
    function: QueryFunction
    outputs: tuple[Output, ...]


@dataclass(frozen=True, eq=False)
class Persisted(Child):
    """A state that the batch updates, by key; its tuples are the new values."""

    state: StateSpec
    groups: tuple[str, ...]
    inputs: tuple[str, ...]
    aggregator: CombinerAggregator | ReducerAggregator
    outputs: tuple[Output, ...]


@dataclass(frozen=True, eq=False)
class Updated(Child):
    """A state that each partition updates; its tuples are those that the updater emits."""

    state: StateSpec
    inputs: tuple[str, ...]
    updater: StateUpdater
    outputs: tuple[Output, ...]


@dataclass(frozen=True, eq=False)
class Written(Child):
    """A topic that the tuples are written to."""

    topic: LogTopic
