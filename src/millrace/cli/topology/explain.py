"""`millrace topology explain`: the graph of a topology, and how its tuples travel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.options import KafkaCommand
from millrace.cli.topology.listing import print_table
from millrace.cli.topology.settings import typed_settings

if TYPE_CHECKING:
    from millrace.topologies.model.topology import Edge, Plan

Placement = Sequence[frozenset[int]]


@click.command("explain", cls=KafkaCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--class", "class_name", metavar="NAME", help="The topology, if the file has several.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Workers.  [default: as configured]")
@click.option("--config", "settings", multiple=True, metavar="K=V", help="Any setting of the topology.")
@click.option("--mermaid", is_flag=True, help="Draw the graph in Mermaid's language.")
def explain(
    *,
    file: Path,
    class_name: str | None,
    workers: int | None,
    settings: tuple[str, ...],
    mermaid: bool,
) -> None:
    """Show the graph of the topology in FILE, the transport of its edges and where its tasks run."""
    from millrace.topologies.model.config import value_of
    from millrace.topologies.model.loading import load_topology
    from millrace.topologies.runtime.placement import EvenScheduler

    plan = load_topology(file, class_name).plan(None, typed_settings(settings))
    if mermaid:
        click.echo(_mermaid(plan))
        return
    count = workers or value_of("topology.workers", plan.config)
    placement = EvenScheduler().place(plan, count)
    click.echo(f"{plan.name}: {plan.guarantee}, {count} worker{'s' if count > 1 else ''}\n")
    print_table(
        ("COMPONENT", "KIND", "CLASS", "TASKS", "WORKERS"),
        [
            (
                name,
                "spout" if name in plan.spouts else "bolt",
                spec.component.__name__,
                str(spec.tasks),
                _workers(plan.tasks[name], placement),
            )
            for name, spec in plan.components.items()
        ],
    )
    click.echo()
    print_table(
        ("FROM", "STREAM", "TO", "GROUPING", "TRANSPORT"),
        [
            (
                edge.source,
                edge.stream.name,
                edge.target,
                str(edge.grouping),
                _transport(edge, plan, placement),
            )
            for edge in plan.edges
        ],
    )


def _workers(tasks: Sequence[int], placement: Placement) -> str:
    return ",".join(str(number) for number, hosted in enumerate(placement) if hosted.intersection(tasks))


def _transport(edge: Edge, plan: Plan, placement: Placement) -> str:
    """Memory between tasks of one worker, the log between workers."""
    pairs = [
        any(sender in hosted and receiver in hosted for hosted in placement)
        for sender in plan.tasks[edge.source]
        for receiver in plan.tasks[edge.target]
    ]
    if all(pairs):
        return "memory"
    return (
        f"memory for {sum(pairs)} of {len(pairs)} pairs of tasks, else the log" if any(pairs) else "the log"
    )


def _mermaid(plan: Plan) -> str:
    lines = ["flowchart LR"]
    for number, (name, spec) in enumerate(plan.components.items()):
        label = f"{name}<br/>{spec.component.__name__} x {spec.tasks}"
        opening, closing = ("([", "])") if name in plan.spouts else ("[", "]")
        lines.append(f'    c{number}{opening}"{label}"{closing}')
    numbers = {name: number for number, name in enumerate(plan.components)}
    for edge in plan.edges:
        stream = "" if edge.stream.name == "default" else f"{edge.stream.name}: "
        lines.append(f'    c{numbers[edge.source]} -->|"{stream}{edge.grouping}"| c{numbers[edge.target]}')
    return "\n".join(lines)
