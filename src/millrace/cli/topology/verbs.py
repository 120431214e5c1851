"""`millrace topology kill`, `activate`, `deactivate` and `rebalance`: Storm's verbs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, parse_pairs
from millrace.cli.topology.supervised import Supervised, supervisor_options

if TYPE_CHECKING:
    from millrace.topologies.supervisor.board import Board
    from millrace.topologies.supervisor.records import Job

# Beyond the wait that the command line asks for.
PATIENCE_SECONDS = 60.0


@click.command("kill", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.option(
    "-w",
    "wait_seconds",
    type=click.FloatRange(0),
    metavar="SECS",
    help="Seconds between the end of the sources and the end of the workers.  [default: message time-out]",
)
def kill(*, supervised: Supervised, name: str, wait_seconds: float | None) -> None:
    """End the topology NAME. Its offsets and state stay, for a topology of the same name."""
    from millrace.topologies.supervisor import submission

    with supervised.board() as board:
        job = submission.kill(board, board.job(name), wait_seconds)
        deadline = time.monotonic() + job.wait_seconds + PATIENCE_SECONDS
        while job.name in board.jobs:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{job.name} is marked as killed, but has not ended yet; does the supervisor run?"
                )
            board.refresh(0.2)
        click.echo(f"killed {job.name}")


@click.command("activate", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
def activate(*, supervised: Supervised, name: str) -> None:
    """Let the spouts of the topology NAME emit again."""
    from millrace.topologies.supervisor import submission

    with supervised.board() as board:
        job = submission.activate(board, board.job(name))
        _await_state(board, job, "ACTIVE")
        click.echo(f"activated {job.name}")


@click.command("deactivate", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
def deactivate(*, supervised: Supervised, name: str) -> None:
    """Stop the spouts of the topology NAME; its workers stay."""
    from millrace.topologies.supervisor import submission

    with supervised.board() as board:
        job = submission.deactivate(board, board.job(name))
        _await_state(board, job, "INACTIVE")
        click.echo(f"deactivated {job.name}")


@click.command("rebalance", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.option("-w", "wait_seconds", type=click.FloatRange(0), metavar="SECS", hidden=True)
@click.option("-n", "workers", type=click.IntRange(1), metavar="N", help="Workers.  [default: as before]")
@click.option("-e", "executors", multiple=True, metavar="COMPONENT=N", help="Executors of a component.")
def rebalance(
    *,
    supervised: Supervised,
    name: str,
    wait_seconds: float | None,
    workers: int | None,
    executors: tuple[str, ...],
) -> None:
    """Place the tasks of the topology NAME again, over N workers; no tuple is lost."""
    from millrace.topologies.supervisor import submission

    counts = {component: _count(component, text) for component, text in parse_pairs(executors, "-e").items()}
    with supervised.board() as board:
        before = board.job(name)
        job = submission.rebalance(board, before, workers=workers, executors=counts)
        _await_state(board, job, "ACTIVE" if job.wanted == "active" else "INACTIVE")
        click.echo(f"rebalanced {job.name}: {job.workers} workers")


def _count(component: str, text: str) -> int:
    if not text.isdecimal():
        raise CommandError(f"-e {component}={text}: write the number of executors, such as {component}=2")
    return int(text)


def _await_state(board: Board, job: Job, state: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = board.status(job)
        if status is not None and status.generation == job.generation:
            if status.state == state:
                return
            if status.state == "FAILED":
                raise CommandError(f"{job.name} cannot run: {status.error}")
        if time.monotonic() > deadline:
            raise CommandError(
                f"{job.name} is not {state.lower()} yet; `millrace topology describe {job.name}` shows why"
            )
        board.refresh(0.2)
