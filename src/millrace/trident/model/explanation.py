"""Explains a topology: each operator, the engine that runs it, and why."""

from __future__ import annotations

from millrace.trident.model import nodes
from millrace.trident.model.engines import choose
from millrace.trident.model.topology import TridentTopology
from millrace.trident.operations.functions import label_of

ENGINES = {"native": "Spark", "python": "Python", "driver": "driver"}


def explain(topology: TridentTopology) -> str:
    """The operators of a topology, line by line. Those of several streams appear once."""
    numbers: dict[int, int] = {}
    lines = [f"topology {topology.name}: micro-batches, one Trident batch each"]
    ends: list[nodes.Node] = [*topology.sinks, *(topology.results(request) for request in topology.requests)]
    for end in ends:
        _add(end, numbers, lines)
    return "\n".join(lines)


def _add(node: nodes.Node, numbers: dict[int, int], lines: list[str]) -> int:
    if id(node) in numbers:
        return numbers[id(node)]
    parents = [_add(parent, numbers, lines) for parent in node.parents]
    number = numbers[id(node)] = len(numbers) + 1
    engine, reason = choose(node)
    source = f" of {', '.join(map(str, parents))}" if parents else ""
    fields = f" -> {', '.join(node.fields)}" if node.fields else ""
    lines.append(f"{number:>3}. [{ENGINES[engine]}] {describe(node)}{source}{fields}\n       {reason}")
    return number


def describe(node: nodes.Node) -> str:
    """An operator in a few words."""
    match node:
        case nodes.Source(name=name, topic=topic):
            return f"stream {name} from {topic.name}"
        case nodes.Request(function=function):
            return f"DRPC function {function}"
        case nodes.Each(function=function, replaces=replaces, is_flat=is_flat):
            return f"{('flat_map' if is_flat else 'map') if replaces else 'each'} {label_of(function)}"
        case nodes.Keep(filter=filter):
            return f"filter {label_of(filter)}"
        case nodes.Peek(action=action):
            return f"peek {label_of(action)}"
        case nodes.Project():
            return "project"
        case nodes.Repartition(how=how, by=by):
            return f"partition_by {', '.join(by)}" if how == "by" else how
        case nodes.Aggregated(groups=groups, aggregates=aggregates, scope=scope):
            names = ", ".join(label_of(aggregate.aggregator) for aggregate in aggregates)
            within = f" by {', '.join(groups)}" if groups else ""
            return f"{'partition_aggregate' if scope == 'partition' else 'aggregate'} {names}{within}"
        case nodes.Top(by=by_field, count=count, descending=descending):
            return f"{'largest' if descending else 'smallest'} {count} by {by_field}"
        case _:
            return _describe_state(node)


def _describe_state(node: nodes.Node) -> str:
    match node:
        case nodes.Windowed(aggregate=aggregate):
            return f"window {label_of(aggregate.aggregator)}"
        case nodes.Queried(state=state, function=query):
            return f"state_query {label_of(query)} in {state.name}"
        case nodes.Persisted(state=state, aggregator=aggregator):
            return f"persistent_aggregate {label_of(aggregator)} in {state.name}"
        case nodes.Updated(state=state, updater=updater):
            return f"partition_persist {label_of(updater)} in {state.name}"
        case nodes.Written(topic=topic):
            return f"to_log {topic.name}"
    return "merge" if isinstance(node, nodes.Merged) else "join"
