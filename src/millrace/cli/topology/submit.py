"""`millrace topology submit` and `update`: ship a topology to the supervisor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand
from millrace.cli.terminal.progress import progress
from millrace.cli.topology.settings import typed_settings
from millrace.cli.topology.supervised import Supervised, supervisor_options

if TYPE_CHECKING:
    from millrace.topologies.supervisor.board import Board
    from millrace.topologies.supervisor.records import Job

START_SECONDS = 120.0


@click.command("submit", cls=KafkaCommand)
@supervisor_options
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--class", "class_name", metavar="NAME", help="The topology, if the file has several.")
@click.option("--name", help="Another name for the topology: its own offsets and state.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Workers.  [default: 1]")
@click.option("--config", "settings", multiple=True, metavar="K=V", help="Any setting; spark.* are Spark's.")
@click.option("--master", metavar="URL", help="Spark master.  [default: the supervisor's machine]")
@click.option("--no-spark", is_flag=True, help="Run the workers as plain processes beside the supervisor.")
@click.option(
    "--file", "files", multiple=True, type=click.Path(path_type=Path), help="A file or folder to ship too."
)
@click.option("--inactive", is_flag=True, help="Wait for `activate` before anything is read.")
@click.option("--no-wait", is_flag=True, help="Return before the workers are up.")
def submit(
    *,
    supervised: Supervised,
    file: Path,
    class_name: str | None,
    name: str | None,
    workers: int | None,
    settings: tuple[str, ...],
    master: str | None,
    no_spark: bool,
    files: tuple[Path, ...],
    inactive: bool,
    no_wait: bool,
) -> None:
    """Submit the topology in FILE: the supervisor runs it until it is killed."""
    from millrace.topologies.supervisor import submission
    from millrace.topologies.supervisor.members import require_supervisor

    config = typed_settings(settings)
    if workers is not None:
        config["topology.workers"] = workers
    package = submission.Package(file, class_name=class_name, name=name, config=config, files=files)
    with supervised.board() as board:
        require_supervisor(supervised.target.bootstrap, supervised.target.properties)
        with progress(f"shipping {file.name}", len(package.content)) as bar:
            job = submission.submit(
                board,
                package,
                master=master,
                spark=not no_spark,
                active=not inactive,
                on_progress=bar.update,
            )
        click.echo(f"submitted {job.name} as {job.id}")
        if not no_wait:
            _await_workers(board, job)


@click.command("update", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--class", "class_name", metavar="NAME", help="The topology, if the file has several.")
@click.option("--config", "settings", multiple=True, metavar="K=V", help="Any setting of the topology.")
@click.option(
    "--file", "files", multiple=True, type=click.Path(path_type=Path), help="A file or folder to ship too."
)
def update(
    *,
    supervised: Supervised,
    name: str,
    file: Path,
    class_name: str | None,
    settings: tuple[str, ...],
    files: tuple[Path, ...],
) -> None:
    """Replace the code of the topology NAME by FILE, at a commit; offsets and state are kept."""
    from millrace.topologies.supervisor import submission

    with supervised.board() as board:
        job = board.job(name)
        # Its settings stay, unless they are given again.
        config: dict[str, Any] = {"topology.workers": job.workers, **typed_settings(settings)}
        package = submission.Package(file, class_name=class_name, name=job.name, config=config, files=files)
        with progress(f"shipping {file.name}", len(package.content)) as bar:
            changed = submission.update(board, job, package, bar.update)
        _await_workers(board, changed)
        click.echo(f"updated {job.name}")


def _await_workers(board: Board, job: Job) -> None:
    """Wait until the workers are up; raises CommandError if they cannot start."""
    deadline = time.monotonic() + START_SECONDS
    status = None
    while time.monotonic() < deadline:
        board.refresh(0.2)
        status = board.status(job)
        if job.name not in board.jobs:
            raise CommandError(f"{job.name} was killed")
        if status is None or status.generation != job.generation:
            continue
        if status.state == "FAILED":
            raise CommandError(f"{job.name} cannot start: {status.error}")
        if status.state in ("ACTIVE", "INACTIVE"):
            click.echo(f"{status.workers_up} of {status.workers} workers up")
            return
    up = f"{status.workers_up} of {status.workers} workers up" if status is not None else "no driver yet"
    raise CommandError(
        f"{job.name} is submitted but does not run yet: {up};"
        f" `millrace topology describe {job.name}` shows why"
    )
