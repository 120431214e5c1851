"""Streams: Trident's operators as methods. Functions append fields, aggregators replace them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.pipelines.topics.declaration import LogTopic
from millrace.trident.errors import TridentError
from millrace.trident.model import nodes
from millrace.trident.model.fields import Names, names_of, outputs_of, require_types, typed
from millrace.trident.model.windows import Window
from millrace.trident.operations.aggregators import (
    Aggregator,
    AnyAggregator,
    CombinerAggregator,
    Count,
    Max,
    Min,
    ReducerAggregator,
    Sum,
)
from millrace.trident.operations.expressions import Expression
from millrace.trident.operations.functions import AnyFilter, AnyFunction, Filter, Function, Split, label_of
from millrace.trident.operations.queries import QueryFunction, StateUpdater
from millrace.trident.state.declaration import StateSpec

if TYPE_CHECKING:
    from millrace.trident.model.topology import TridentTopology


class Stream:
    """A stream of batches of tuples. Every method returns a new stream."""

    def __init__(self, topology: TridentTopology, node: nodes.Node) -> None:
        self.topology = topology
        self.node = node
        topology.nodes.append(node)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the values of each tuple."""
        return self.node.fields

    # One tuple at a time

    def each(self, inputs: Names, operation: AnyFunction | AnyFilter, outputs: Names | None = None) -> Stream:
        """Apply a function to some fields and append its results; without outputs, apply a filter."""
        if outputs is None:
            if isinstance(operation, Function):
                raise TridentError(
                    f"{label_of(operation)} is a function: name its output fields, as in"
                    f" each({inputs!r}, {label_of(operation)}, 'word')"
                )
            return self.filter(operation, inputs)
        if isinstance(operation, Filter):
            raise TridentError(
                f"{label_of(operation)} is a filter, which has no output fields; leave them out"
            )
        return self._function(self._known(inputs), operation, outputs, replaces=False)

    def map(self, function: AnyFunction, outputs: Names, inputs: Names | None = None) -> Stream:
        """Replace each tuple by what a function returns for its fields."""
        return self._function(self._chosen(inputs, function), function, outputs, replaces=True)

    def flat_map(self, function: AnyFunction, outputs: Names, inputs: Names | None = None) -> Stream:
        """Replace each tuple by all that a function returns or yields for its fields."""
        return self._function(self._chosen(inputs, function), function, outputs, replaces=True, is_flat=True)

    def filter(self, filter: AnyFilter, inputs: Names | None = None) -> Stream:
        """Keep the tuples for which a filter, a function or an expression is true."""
        _require_callable(filter, "a filter")
        return self._next(nodes.Keep(self.fields, self.node, self._chosen(inputs, filter), filter))

    def peek(self, action: Callable[..., Any]) -> Stream:
        """Call a function with the values of each tuple, and leave the tuple as it is."""
        _require_callable(action, "an action")
        return self._next(nodes.Peek(self.fields, self.node, action))

    def project(self, fields: Names) -> Stream:
        """Keep only some fields."""
        return self._next(nodes.Project(self._known(fields), self.node))

    # Distribution

    def partition_by(self, fields: Names) -> Stream:
        """Send tuples with equal values of some fields to the same task."""
        return self._next(nodes.Repartition(self.fields, self.node, "by", self._known(fields)))

    def shuffle(self) -> Stream:
        """Distribute the tuples evenly over tasks."""
        return self._next(nodes.Repartition(self.fields, self.node, "shuffle"))

    def broadcast(self) -> Stream:
        """Send every tuple to every task."""
        return self._next(nodes.Repartition(self.fields, self.node, "broadcast"))

    def global_(self) -> Stream:
        """Send all tuples to one task."""
        return self._next(nodes.Repartition(self.fields, self.node, "global"))

    def group_by(self, fields: Names) -> GroupedStream:
        """Group the tuples of each batch by some fields."""
        return GroupedStream(self, self._known(fields))

    # Aggregates

    def aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> Stream:
        """Aggregate all tuples of a batch: its results replace them."""
        return _aggregated(self, (), [self._aggregate(inputs, aggregator, outputs)])

    def partition_aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> Stream:
        """Aggregate the tuples of each partition of a batch."""
        return _aggregated(self, (), [self._aggregate(inputs, aggregator, outputs)], scope="partition")

    def chained_agg(self) -> ChainedAggregates:
        """Begin several aggregates of the same tuples; end them with `chain_end`."""
        return ChainedAggregates(self, (), [])

    def min_by(self, field: str) -> Stream:
        """The tuple of each batch with the smallest value of a field."""
        return self._top(field, 1, descending=False)

    def max_by(self, field: str) -> Stream:
        """The tuple of each batch with the largest value of a field."""
        return self._top(field, 1, descending=True)

    def top(self, count: int, field: str, *, descending: bool = True) -> Stream:
        """The tuples of each batch with the largest values of a field, in this order."""
        if count < 1:
            raise TridentError(f"top({count}) selects nothing; give a number from 1 on")
        return self._top(field, count, descending=descending)

    def window(
        self,
        window: Window,
        state: StateSpec,
        inputs: Names | None,
        aggregator: AnyAggregator,
        outputs: Names,
    ) -> Stream:
        """Aggregate windows that span batches. The state keeps the tuples that may still be needed."""
        if state.kind != "opaque":
            raise TridentError(
                f"the window keeps its tuples in {state.name}, which is {state.kind}: a batch that comes"
                " again could not repeat its windows; declare kind='opaque'"
            )
        aggregate = self._aggregate(inputs, aggregator, outputs)
        fields = tuple(output.name for output in aggregate.outputs)
        return self._next(nodes.Windowed(fields, self.node, window, state, aggregate))

    # State

    def state_query(
        self, state: StateSpec | TridentState, inputs: Names | None, function: QueryFunction, outputs: Names
    ) -> Stream:
        """Look tuples up in a state and append the results."""
        if not isinstance(function, QueryFunction):
            raise TridentError(f"{label_of(function)} is not a query; pass MapGet() or a QueryFunction")
        spec = _spec_of(state)
        declared = typed(outputs_of(outputs), function)
        if isinstance(state, TridentState) and len(declared) == 1 and declared[0].type is None:
            declared = (declared[0]._replace(type=state.value_type),)
        fields = self._appended(declared)
        known = self._known(inputs) if inputs is not None else ()
        return self._next(nodes.Queried(fields, self.node, spec, known, function, declared))

    def persistent_aggregate(
        self,
        state: StateSpec,
        aggregator: CombinerAggregator | ReducerAggregator,
        outputs: Names,
        inputs: Names | None = None,
    ) -> TridentState:
        """Keep an aggregate of all batches in a state, exactly once."""
        return _persisted(self, (), state, inputs, aggregator, outputs)

    def partition_persist(
        self, state: StateSpec, inputs: Names, updater: StateUpdater, outputs: Names = ()
    ) -> TridentState:
        """Update a state with the tuples of each partition."""
        if not isinstance(updater, StateUpdater):
            raise TridentError(f"{label_of(updater)} is not an updater; pass a StateUpdater")
        declared = typed(outputs_of(outputs), updater) if outputs else ()
        require_types(declared, updater)
        fields = tuple(output.name for output in declared)
        node = nodes.Updated(fields, self.node, _spec_of(state), self._known(inputs), updater, declared)
        self.topology.add_sink(node)
        return TridentState(self.topology, node, node.state)

    def to_log(self, topic: LogTopic) -> None:
        """Write the tuples to a topic, exactly once."""
        self.topology.add_sink(nodes.Written(self.fields, self.node, topic))

    # Building

    def _next(self, node: nodes.Node) -> Stream:
        return Stream(self.topology, node)

    def _function(
        self,
        inputs: tuple[str, ...],
        function: AnyFunction,
        outputs: Names,
        *,
        replaces: bool,
        is_flat: bool = False,
    ) -> Stream:
        _require_callable(function, "a function")
        declared = typed(outputs_of(outputs), function, is_flat=is_flat)
        if isinstance(function, Expression):
            _require_one_output(declared, function)
        elif not isinstance(function, Split):
            require_types(declared, function)
        fields = tuple(output.name for output in declared) if replaces else self._appended(declared)
        return self._next(nodes.Each(fields, self.node, inputs, function, declared, replaces, is_flat))

    def _aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> nodes.Aggregate:
        return _checked_aggregate(self.fields, inputs, aggregator, outputs)

    def _top(self, field: str, count: int, *, descending: bool) -> Stream:
        [by] = self._known(field)
        return self._next(nodes.Top(self.fields, self.node, by, count, descending))

    def _chosen(self, inputs: Names | None, operation: Any) -> tuple[str, ...]:
        if isinstance(operation, Expression):
            missing = sorted(operation.fields - set(self.fields))
            if missing:
                raise self._unknown(missing[0])
        return self.fields if inputs is None else self._known(inputs)

    def _known(self, fields: Names) -> tuple[str, ...]:
        names = names_of(fields)
        for name in names:
            if name not in self.fields:
                raise self._unknown(name)
        return names

    def _unknown(self, name: str) -> TridentError:
        return TridentError(f"the stream has no field {name!r}; its fields are {', '.join(self.fields)}")

    def _appended(self, outputs: Sequence[Any]) -> tuple[str, ...]:
        for output in outputs:
            if output.name in self.fields:
                raise TridentError(
                    f"the stream has a field {output.name!r} already; choose another name, or use map"
                )
        return (*self.fields, *(output.name for output in outputs))


@dataclass(frozen=True)
class GroupedStream:
    """The tuples of each batch in groups."""

    stream: Stream
    groups: tuple[str, ...]

    def aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> Stream:
        """Aggregate each group: its fields and the results replace the tuples."""
        return _aggregated(self.stream, self.groups, [self._aggregate(inputs, aggregator, outputs)])

    def chained_agg(self) -> ChainedAggregates:
        """Begin several aggregates of each group; end them with `chain_end`."""
        return ChainedAggregates(self.stream, self.groups, [])

    def persistent_aggregate(
        self,
        state: StateSpec,
        aggregator: CombinerAggregator | ReducerAggregator,
        outputs: Names,
        inputs: Names | None = None,
    ) -> TridentState:
        """Keep an aggregate of each group over all batches in a state, exactly once."""
        return _persisted(self.stream, self.groups, state, inputs, aggregator, outputs)

    def state_query(
        self, state: StateSpec | TridentState, inputs: Names | None, function: QueryFunction, outputs: Names
    ) -> Stream:
        """Look tuples up in a state, those of a group in the same task."""
        return self.to_stream().state_query(state, inputs, function, outputs)

    def to_stream(self) -> Stream:
        """The tuples without groups, those of a group in the same task."""
        return self.stream.partition_by(self.groups)

    def _aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> nodes.Aggregate:
        return _checked_aggregate(self.stream.fields, inputs, aggregator, outputs)


@dataclass(frozen=True)
class ChainedAggregates:
    """Several aggregates of the same tuples."""

    stream: Stream
    groups: tuple[str, ...]
    aggregates: list[nodes.Aggregate]

    def aggregate(self, inputs: Names | None, aggregator: AnyAggregator, outputs: Names) -> ChainedAggregates:
        """Add an aggregate."""
        added = _checked_aggregate(self.stream.fields, inputs, aggregator, outputs)
        return ChainedAggregates(self.stream, self.groups, [*self.aggregates, added])

    def chain_end(self) -> Stream:
        """End the chain: the results stand side by side."""
        if not self.aggregates:
            raise TridentError("a chain without aggregates; call aggregate before chain_end")
        return _aggregated(self.stream, self.groups, self.aggregates)


@dataclass(frozen=True)
class TridentState:
    """A state that a stream of the topology updates."""

    topology: TridentTopology
    node: nodes.Persisted | nodes.Updated
    spec: StateSpec

    def new_values_stream(self) -> Stream:
        """The new values that each batch gives the state, with the fields that it is grouped by."""
        return Stream(self.topology, self.node)

    @property
    def value_type(self) -> str | None:
        """The type of its values, if it is known before the topology runs."""
        return self.node.outputs[0].type if isinstance(self.node, nodes.Persisted) else None


def _aggregated(
    stream: Stream, groups: tuple[str, ...], aggregates: Sequence[nodes.Aggregate], scope: Any = "batch"
) -> Stream:
    names = [*groups, *(output.name for aggregate in aggregates for output in aggregate.outputs)]
    if len(set(names)) < len(names):
        raise TridentError(f"{', '.join(names)}: a name appears twice; rename an output")
    node = nodes.Aggregated(tuple(names), stream.node, groups, tuple(aggregates), scope)
    return Stream(stream.topology, node)


def _checked_aggregate(
    fields: Sequence[str], inputs: Names | None, aggregator: AnyAggregator, outputs: Names
) -> nodes.Aggregate:
    if not isinstance(aggregator, (CombinerAggregator, ReducerAggregator, Aggregator)):
        raise TridentError(f"{label_of(aggregator)} is not an aggregator; pass Count(), or subclass one")
    known = () if inputs is None else names_of(inputs)
    for name in known:
        if name not in fields:
            raise TridentError(f"the stream has no field {name!r}; its fields are {', '.join(fields)}")
    if isinstance(aggregator, (Sum, Min, Max)) and len(known) != 1:
        raise TridentError(f"{label_of(aggregator)} aggregates one field; write aggregate('price', ...)")
    declared = typed(outputs_of(outputs), aggregator)
    if not isinstance(aggregator, Aggregator):
        _require_one_output(declared, aggregator)
    if not isinstance(aggregator, (Count, Sum, Min, Max)):
        require_types(declared, aggregator)
    return nodes.Aggregate(known, aggregator, declared)


def _persisted(
    stream: Stream,
    groups: tuple[str, ...],
    state: StateSpec,
    inputs: Names | None,
    aggregator: Any,
    outputs: Any,
) -> TridentState:
    if not isinstance(state, StateSpec):
        raise TridentError(
            f"{state!r} is not a state; declare one, as in state.sqlite('counts.db', 'counts')"
        )
    if isinstance(aggregator, Aggregator):
        raise TridentError(
            f"{label_of(aggregator)} cannot add to a state; use a CombinerAggregator or a ReducerAggregator"
        )
    aggregate = _checked_aggregate(stream.fields, inputs, aggregator, outputs)
    fields = (*groups, aggregate.outputs[0].name)
    node = nodes.Persisted(
        fields, stream.node, state, groups, aggregate.inputs, aggregator, aggregate.outputs
    )
    stream.topology.add_sink(node)
    return TridentState(stream.topology, node, state)


def _spec_of(state: Any) -> StateSpec:
    if isinstance(state, TridentState):
        return state.spec
    if isinstance(state, StateSpec):
        return state
    raise TridentError(f"{state!r} is not a state; declare one, as in state.sqlite('counts.db', 'counts')")


def _require_one_output(outputs: Sequence[Any], operation: Any) -> None:
    if len(outputs) != 1:
        raise TridentError(
            f"{label_of(operation)} makes one field, and {len(outputs)} are declared; name one"
        )


def _require_callable(operation: Any, role: str) -> None:
    if not callable(operation) and not isinstance(operation, (Expression, Function, Filter)):
        raise TridentError(f"{operation!r} is not {role}; pass a function, an expression or a subclass")
