"""`millrace topology list`, `describe` and `logs`."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand
from millrace.cli.terminal.tables import is_for_people, print_terminal_table
from millrace.cli.topology.supervised import Supervised, supervisor_options

if TYPE_CHECKING:
    from millrace.topologies.supervisor.board import Board
    from millrace.topologies.supervisor.records import Job, Status

LOG_BYTES = 64 << 10
FOLLOW_SECONDS = 0.2


@click.command("list", cls=KafkaCommand)
@supervisor_options
def list_topologies(*, supervised: Supervised) -> None:
    """List the topologies."""
    with supervised.board() as board:
        rows = [_row(job, board.status(job)) for job in sorted(board.jobs.values(), key=lambda job: job.name)]
        ignored = len(board.ignored)
    print_table(
        ("Topology_name", "Status", "Num_tasks", "Num_workers", "Uptime_secs", "Topology_Id", "Owner"), rows
    )
    if ignored:
        click.echo(f"note: {ignored} records without a valid signature are ignored", err=True)


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: for people on a terminal, in columns that scripts can cut in a pipe."""
    content = [tuple(row) for row in rows]
    if is_for_people():
        print_terminal_table(headers, content)
        return
    widths = [max(len(row[index]) for row in (headers, *content)) for index in range(len(headers))]
    for row in (tuple(headers), *content):
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def state_of(job: Job, status: Status | None) -> str:
    """The state of a topology, for people."""
    if job.wanted == "killed":
        return "KILLED"
    return "WAITING" if status is None else status.state


def _row(job: Job, status: Status | None) -> tuple[str, ...]:
    tasks = sum(len(component.tasks) for component in job.components.values())
    up = job.workers if status is None else status.workers_up
    uptime = "-" if status is None else str(max(round(time.time() - status.started_ms / 1000), 0))
    return job.name, state_of(job, status), str(tasks), str(up), uptime, job.id, job.owner


@click.command("describe", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
def describe(*, supervised: Supervised, name: str) -> None:
    """Show the topology NAME: its state, its components and where they run."""
    with supervised.board() as board:
        job = board.job(name)
        status = board.status(job)
    for label, text in _facts(job, status):
        click.echo(f"{label + ':':<12}{text}")
    click.echo()
    workers = _workers_of_tasks(status)
    rows = [
        (
            component,
            info.kind,
            info.class_name,
            str(len(info.tasks)),
            ",".join(sorted({workers.get(task, "-") for task in info.tasks})),
            ", ".join(f"{edge.source} [{edge.grouping}]" for edge in job.edges if edge.target == component)
            or "-",
        )
        for component, info in job.components.items()
    ]
    print_table(("COMPONENT", "KIND", "CLASS", "TASKS", "WORKERS", "INPUTS"), rows)


def _facts(job: Job, status: Status | None) -> Iterator[tuple[str, str]]:
    yield "Topology", job.name
    yield "Id", job.id
    yield "Status", state_of(job, status)
    yield "Guarantee", job.guarantee
    yield "Owner", job.owner
    yield "Runs on", (job.master or "Spark on the supervisor's machine") if job.spark else "plain processes"
    if status is None:
        yield "Workers", f"none yet; {job.workers} wanted"
        return
    yield "Workers", f"{status.workers_up} of {status.workers} up"
    yield "Driver", f"pid {status.pid} on {status.host}"
    yield "Log", status.log
    if status.error:
        yield "Error", status.error


def _workers_of_tasks(status: Status | None) -> dict[int, str]:
    if status is None:
        return {}
    return {task: str(number) for number, tasks in enumerate(status.placement) for task in tasks}


@click.command("logs", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
def logs(*, supervised: Supervised, name: str, follow: bool) -> None:
    """Print the newest output of the driver and the workers of the topology NAME."""
    with supervised.board() as board:
        path = _log_file(board, name)
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - LOG_BYTES, 0))
        if file.tell():
            file.readline()
        while True:
            content = file.read()
            if content:
                click.echo(content.decode(errors="replace"), nl=False)
            elif not follow:
                return
            else:
                time.sleep(FOLLOW_SECONDS)


def _log_file(board: Board, name: str) -> Path:
    job = board.job(name)
    status = board.status(job)
    if status is None or not status.log:
        raise CommandError(f"{job.name} has not been started yet")
    if status.host != socket.gethostname():
        raise CommandError(f"the log of {job.name} is on {status.host}: {status.log}")
    path = Path(status.log)
    if not path.exists():
        raise CommandError(f"the log of {job.name} is gone: {path}")
    return path
