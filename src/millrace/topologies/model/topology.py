"""Topologies: components, wired into a directed acyclic graph that is checked when the class is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from millrace.topologies.model.bolts import Bolt
from millrace.topologies.model.config import check_config
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.grouping import Grouping, Kind
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.specs import ComponentSpec, StreamRef
from millrace.topologies.model.spouts import Spout
from millrace.topologies.model.streams import Stream

GUARANTEES = ("none", "at-least-once", "exactly-once")
_LEGAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Edge:
    """A stream on its way to a bolt."""

    source: str
    stream: Stream
    target: str
    grouping: Grouping


@dataclass(frozen=True)
class Plan:
    """A checked topology: what the runtime runs."""

    name: str
    guarantee: str
    components: Mapping[str, ComponentSpec]
    """In topological order: a component comes after all its inputs."""
    edges: Sequence[Edge]
    config: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of each component's tasks, from 1, in the order of the components' names."""
        numbers: dict[str, tuple[int, ...]] = {}
        first = 1
        for name in sorted(self.components):
            count = self.components[name].tasks
            numbers[name] = tuple(range(first, first + count))
            first += count
        return numbers

    @property
    def spouts(self) -> list[str]:
        return [name for name, spec in self.components.items() if issubclass(spec.component, Spout)]

    @property
    def bolts(self) -> list[str]:
        return [name for name, spec in self.components.items() if issubclass(spec.component, Bolt)]

    def edges_from(self, component: str) -> list[Edge]:
        return [edge for edge in self.edges if edge.source == component]

    def edges_to(self, component: str) -> list[Edge]:
        return [edge for edge in self.edges if edge.target == component]


class Topology:
    """Subclass it, and name its components as attributes::

    class WordCount(Topology):
        sentences = LogSpout.spec("sentences")
        split = Split.spec(inputs=[sentences], par=2)
        count = Count.spec(inputs={split: Grouping.fields("word")}, par=4)
    """

    guarantee: ClassVar[str] = "at-least-once"
    config: ClassVar[Mapping[str, Any]] = {}
    name: ClassVar[str | None] = None
    """The topology's name, that of the class in lower case with hyphens unless it is set."""
    specs: ClassVar[Mapping[str, ComponentSpec]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        specs = dict(cls.specs)
        for attribute, value in vars(cls).items():
            if isinstance(value, ComponentSpec):
                value.name = value.name or attribute
                specs[value.name] = value
        cls.specs = specs
        # An abstract base may have no components; a topology with some must be right at once.
        if specs:
            cls.plan()

    @classmethod
    def plan(cls, name: str | None = None, config: Mapping[str, Any] | None = None) -> Plan:
        """The checked topology, under another name or with further settings if given."""
        return build_plan(
            name or cls.name or _hyphenated(cls.__name__),
            cls.specs,
            guarantee=cls.guarantee,
            config=dict(cls.config) | dict(config or {}),
        )


def build_plan(
    name: str, specs: Mapping[str, ComponentSpec], *, guarantee: str, config: Mapping[str, Any]
) -> Plan:
    """Check components and their connections; every error names the component and the remedy."""
    if not _LEGAL_NAME.fullmatch(name):
        raise TopologyError(f"the name {name!r} is not allowed; use letters, digits, '.', '_' and '-'")
    if guarantee not in GUARANTEES:
        raise TopologyError(f"{name}: the guarantee {guarantee!r} is not one of {', '.join(GUARANTEES)}")
    if not any(issubclass(spec.component, Spout) for spec in specs.values()):
        raise TopologyError(f"{name} has no spout; a topology needs a source, such as LogSpout.spec('topic')")
    known = {id(spec): component for component, spec in specs.items()}
    for component, spec in specs.items():
        if component.startswith("__") or not _LEGAL_NAME.fullmatch(component):
            raise TopologyError(f"{name}: a component cannot be called {component!r}")
        check_config(component, spec.config, of_component=True)
        for source, grouping in spec.inputs.items():
            _check_input(component, source, grouping, known)
        spec.component.check_spec(spec, component)
        _check_guarantee(name, component, spec, guarantee)
    check_config(name, config, of_component=False)
    return Plan(
        name,
        guarantee,
        {component: specs[component] for component in _in_order(name, specs, known)},
        tuple(_edges(specs, known)),
        config,
    )


def _check_guarantee(name: str, component: str, spec: ComponentSpec, guarantee: str) -> None:
    if guarantee != "exactly-once":
        return
    if issubclass(spec.component, Spout) and not issubclass(spec.component, LogSpout):
        raise TopologyError(
            f"{name} is exactly-once, but {component}, a spout of your own, cannot go back to a commit; "
            "write its records to a topic and read them with LogSpout, or use guarantee = 'at-least-once'"
        )


def _check_input(component: str, source: StreamRef, grouping: Grouping, known: Mapping[int, str]) -> None:
    spec, stream_name = source
    if id(spec) not in known:
        raise TopologyError(
            f"{component} reads from {spec!r}, which is not a component of this topology; "
            "make it an attribute of the class"
        )
    origin = known[id(spec)]
    stream = spec.streams.get(stream_name)
    if stream is None:
        raise TopologyError(
            f"{component} reads the stream {stream_name!r} of {origin}, which declares "
            f"{', '.join(spec.streams) or 'no streams'}; set outputs = [...] on {spec.component.__name__}"
        )
    missing = [name for name in grouping.by if name not in stream.fields]
    if missing:
        raise TopologyError(
            f"{component} groups by the field {missing[0]!r}, but {origin}, stream {stream_name}, has "
            f"{', '.join(stream.fields) or 'no fields'}"
        )
    if stream.direct and grouping.kind is not Kind.DIRECT:
        raise TopologyError(
            f"{component} reads the direct stream {stream_name} of {origin}: use Grouping.DIRECT"
        )
    if grouping.kind is Kind.DIRECT and not stream.direct:
        raise TopologyError(
            f"{component} uses Grouping.DIRECT, but {origin} does not declare {stream_name} as direct; "
            f"write Stream(fields=[...], name={stream_name!r}, direct=True)"
        )


def _edges(specs: Mapping[str, ComponentSpec], known: Mapping[int, str]) -> Iterator[Edge]:
    for component, spec in specs.items():
        for source, grouping in spec.inputs.items():
            yield Edge(known[id(source.spec)], source.spec.streams[source.stream], component, grouping)


def _in_order(name: str, specs: Mapping[str, ComponentSpec], known: Mapping[int, str]) -> list[str]:
    """The components so that each comes after its inputs; raises TopologyError if there is a cycle."""
    ordered: list[str] = []
    path: list[str] = []

    def visit(component: str) -> None:
        if component in ordered:
            return
        if component in path:
            cycle = " -> ".join((*path[path.index(component) :], component))
            raise TopologyError(f"{name} has a cycle: {cycle}; tuples would never leave it")
        path.append(component)
        for source in specs[component].inputs:
            visit(known[id(source.spec)])
        path.pop()
        ordered.append(component)

    for component in specs:
        visit(component)
    return ordered


def _hyphenated(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
