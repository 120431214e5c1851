"""Specs: a component's place in a topology, as its author writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.grouping import Grouping
from millrace.topologies.model.streams import DEFAULT_STREAM, Stream, declared_streams

if TYPE_CHECKING:
    from millrace.topologies.model.component import Component


class StreamRef(NamedTuple):
    """One stream of a component: `spec["errors"]`."""

    spec: ComponentSpec
    stream: str


Source: TypeAlias = "ComponentSpec | StreamRef"
Inputs: TypeAlias = "Sequence[Source] | Mapping[Source, Grouping]"


@dataclass(eq=False)
class ComponentSpec:
    """A component of a topology: its class, the arguments of its instances, its inputs and its tasks."""

    component: type[Component]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[StreamRef, Grouping] = field(default_factory=dict)
    par: int = 1
    tasks: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Set by the topology, from the attribute's name, unless the author chose one."""
    streams: Mapping[str, Stream] = field(default_factory=dict)

    def __getitem__(self, stream: str) -> StreamRef:
        return StreamRef(self, stream)

    def __repr__(self) -> str:
        return f"{self.component.__name__}.spec({self.name or ''})"


def make_spec(
    component: type[Component],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    *,
    inputs: Inputs | None,
    par: int,
    tasks: int | None,
    outputs: object | None,
    config: Mapping[str, Any] | None,
    name: str | None,
) -> ComponentSpec:
    """A checked spec; the errors name the class, since the attribute's name is not known yet."""
    label = name or component.__name__
    for option, number in (("par", par), ("tasks", tasks if tasks is not None else par)):
        if type(number) is not int or number < 1:
            raise TopologyError(f"{label}: {option} must be a whole number from 1 on, not {number!r}")
    if tasks is not None and tasks < par:
        raise TopologyError(f"{label}: {par} executors cannot share {tasks} tasks; par must not exceed tasks")
    return ComponentSpec(
        component=component,
        arguments=arguments,
        keywords=dict(keywords),
        inputs=_read_inputs(label, inputs),
        par=par,
        tasks=par if tasks is None else tasks,
        config=dict(component.config) | dict(config or {}),
        name=name,
        streams=declared_streams(label, component.outputs if outputs is None else outputs),
    )


def _read_inputs(label: str, inputs: Inputs | None) -> dict[StreamRef, Grouping]:
    if inputs is None:
        return {}
    if isinstance(inputs, (ComponentSpec, StreamRef)):
        inputs = [inputs]
    groupings = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs, Grouping.SHUFFLE)
    read: dict[StreamRef, Grouping] = {}
    for source, grouping in groupings.items():
        if isinstance(source, ComponentSpec):
            source = StreamRef(source, DEFAULT_STREAM)
        if not isinstance(source, StreamRef):
            raise TopologyError(
                f"{label}: an input must be the spec of another component, not {source!r}; "
                "write inputs=[other] or inputs={other: Grouping.fields('word')}"
            )
        if not isinstance(grouping, Grouping):
            raise TopologyError(
                f"{label}: the input {source.spec!r} needs a Grouping, not {grouping!r}; "
                "write Grouping.SHUFFLE or Grouping.fields('word')"
            )
        read[source] = grouping
    return read
