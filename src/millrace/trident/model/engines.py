"""The engine that runs each operator, and why: Spark itself, Python in tasks, or the driver."""

from __future__ import annotations

from typing import Literal, NamedTuple

from millrace.trident.model import nodes
from millrace.trident.operations.aggregators import AnyAggregator, CombinerAggregator, Count, Max, Min, Sum
from millrace.trident.operations.expressions import Expression
from millrace.trident.operations.functions import Equals, FilterNull, Negate, Split, label_of

Engine = Literal["native", "python", "driver"]


class Choice(NamedTuple):
    """The engine of an operator, and the reason in words."""

    engine: Engine
    reason: str


def is_native_filter(filter: object) -> bool:
    """Whether Spark has an expression for the filter."""
    if isinstance(filter, Negate):
        return is_native_filter(filter.filter)
    return isinstance(filter, (Expression, FilterNull, Equals))


def is_native_aggregator(aggregator: AnyAggregator) -> bool:
    """Whether Spark has an expression for the aggregator. A subclass may do something else."""
    return type(aggregator) in (Count, Sum, Min, Max)


def choose(node: nodes.Node) -> Choice:
    """The engine of an operator."""
    match node:
        case nodes.Source():
            return Choice("native", "Spark reads and decodes the topic")
        case nodes.Request():
            return Choice("python", "a worker of the topology runtime takes the call")
        case nodes.Each(function=function):
            return _of_function(function)
        case nodes.Keep(filter=filter):
            if is_native_filter(filter):
                return Choice("native", f"{label_of(filter)} is an expression of Spark")
            return Choice("python", f"{label_of(filter)} is Python code")
        case nodes.Peek(action=action):
            return Choice("python", f"{label_of(action)} is Python code")
        case nodes.Aggregated():
            return _of_aggregates(node)
        case nodes.Written():
            return Choice("native", "the exactly-once sink of pipelines writes the topic")
        case _:
            return _of_state(node)


def _of_state(node: nodes.Node) -> Choice:
    match node:
        case nodes.Windowed():
            return Choice("driver", "a window spans batches: the driver keeps its tuples in the state")
        case nodes.Queried(state=state) | nodes.Updated(state=state):
            if state.runs_in == "driver":
                return Choice("driver", f"the state {state.name} is used from the driver only")
            return Choice("python", f"tasks use the state {state.name} themselves")
        case nodes.Persisted():
            return _of_persisted(node)
    return Choice("native", "Spark moves or selects whole tuples")


def _of_function(function: object) -> Choice:
    if isinstance(function, Expression) or type(function) is Split:
        return Choice("native", f"{label_of(function)} is an expression of Spark")
    return Choice("python", f"{label_of(function)} is Python code")


def _of_aggregates(node: nodes.Aggregated) -> Choice:
    if node.scope == "partition":
        return Choice("python", "only a task knows its partition")
    other = [agg.aggregator for agg in node.aggregates if not is_native_aggregator(agg.aggregator)]
    if not other:
        return Choice("native", "Spark has these aggregates; each task combines its own tuples first")
    if all(isinstance(agg.aggregator, CombinerAggregator) for agg in node.aggregates):
        return Choice(
            "python", f"{label_of(other[0])} is Python code; each task combines its own tuples first"
        )
    return Choice("python", f"{label_of(other[0])} is Python code, and needs all tuples of a group together")


def _of_persisted(node: nodes.Persisted) -> Choice:
    place = "the driver" if node.state.runs_in == "driver" else "tasks"
    name = label_of(node.aggregator)
    if is_native_aggregator(node.aggregator):
        reason = f"Spark aggregates {name}; {place} add to the {node.state.kind} state {node.state.name}"
    else:
        reason = f"{name} is Python code; {place} add to the {node.state.kind} state {node.state.name}"
    return Choice("driver" if node.state.runs_in == "driver" else "python", reason)
