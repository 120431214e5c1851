"""A plan described for programs that do not load its code, and the check whether new code may replace old."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.topologies.model.bolts import Bolt, StatefulBolt
from millrace.topologies.model.topology import Plan
from millrace.topologies.supervisor.records import ComponentInfo, EdgeInfo, Job


def components_of(plan: Plan) -> dict[str, ComponentInfo]:
    return {
        name: ComponentInfo(
            kind="spout" if name in plan.spouts else "bolt",
            class_name=spec.component.__name__,
            tasks=list(plan.tasks[name]),
            par=spec.par,
            streams={stream.name: list(stream.fields) for stream in spec.streams.values()},
            is_stateful=issubclass(spec.component, StatefulBolt),
            takes_executors=issubclass(spec.component, Bolt)
            and not spec.component.holds_tuples
            and not spec.component.is_async(),
        )
        for name, spec in plan.components.items()
    }


def edges_of(plan: Plan) -> list[EdgeInfo]:
    return [EdgeInfo(edge.source, edge.stream.name, edge.target, str(edge.grouping)) for edge in plan.edges]


def objections(old: Job, new: Plan) -> Iterator[str]:
    """The reasons why new code cannot go on with the offsets and the state of the old."""
    described = components_of(new)
    for name, before in old.components.items():
        after = described.get(name)
        if after is None:
            if before.kind == "bolt":
                yield f"{name} is gone, and tuples on their way to it would be lost"
            continue
        if before.kind != after.kind:
            yield f"{name} was a {before.kind} and is now a {after.kind}"
        elif before.kind == "bolt" and len(before.tasks) != len(after.tasks):
            yield f"{name} had {len(before.tasks)} tasks and now has {len(after.tasks)}: keys would move"
        if before.is_stateful and not after.is_stateful:
            yield f"{name} has state that its new version would not read"
