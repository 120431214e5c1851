"""`millrace replay`: builds a new version of a pipeline's output beside the running one, and switches."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs
from millrace.cli.terminal.tables import is_for_people, print_terminal_table

if TYPE_CHECKING:
    from rich.console import Console

    from millrace.pipelines import Pipeline
    from millrace.pipelines.replay.new_version import Replay


@click.command("replay", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Directory of checkpoints.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option(
    "--from", "start", metavar="TIME", help="Where to start (2026-11-01, -2h).  [default: earliest]"
)
@click.option(
    "--keep-running/--exit", default=True, show_default=True, help="Keep running the new version afterwards."
)
@click.option(
    "--drop-old", is_flag=True, help="Delete the topic of the old version once its run has stopped."
)
@click.option("--restart", is_flag=True, help="Delete what an interrupted replay has built, and start over.")
@click.option(
    "--status", "--list", "status", is_flag=True, help="Show the outputs and their versions, and exit."
)
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="A Spark setting.")
def command(
    *,
    target: Target,
    job: str | None,
    master: str | None,
    checkpoints: str | None,
    start: str | None,
    keep_running: bool,
    drop_old: bool,
    restart: bool,
    status: bool,
    settings: tuple[str, ...],
) -> None:
    """Run a changed pipeline over the whole log again, beside the running one, and then replace it.

    JOB is a file that declares a pipeline (job.py, or job.py:name). The new version writes to its own topics.
    Readers find the current ones in the topic millrace.outputs, or with millrace.pipelines.current.
    """
    target.refuse_security("pipelines")
    if status:
        _print_outputs(target.bootstrap)
        return
    if job is None:
        raise click.UsageError("give the file to replay, or --status", click.get_current_context())
    from rich.console import Console

    from millrace.pipelines.history.range import moment
    from millrace.pipelines.run import preflight

    pipeline = _only(job)
    begin_at = None if start is None else moment(start)
    # Checked before Spark starts, which takes seconds.
    preflight.check([pipeline], target.bootstrap)
    from millrace.pipelines.replay.new_version import Replay
    from millrace.pipelines.run import checkpoint
    from millrace.pipelines.spark.session import session

    console = Console(stderr=True)
    spark = session(pipeline.name, master=master, settings=parse_pairs(settings, "--conf"))
    try:
        replay = Replay(
            pipeline,
            spark,
            target.bootstrap,
            checkpoints=checkpoint.directory(checkpoints),
            start=begin_at,
            console=console,
        )
        _replay(replay, target.bootstrap, console, restart, keep_running, drop_old)
    finally:
        spark.stop()


def _only(job: str) -> Pipeline:
    from millrace.pipelines.job_file import load

    found = load(job)
    if len(found) > 1:
        names = ", ".join(pipeline.name for pipeline in found)
        raise CommandError(f"{job} has the pipelines {names}; choose one: {job}:{found[0].name}")
    return found[0]


def _replay(
    replay: Replay, bootstrap: str, console: Console, restart: bool, keep_running: bool, drop_old: bool
) -> None:
    from millrace.pipelines.console.foreground import follow, interrupts
    from millrace.pipelines.replay.takeover import Takeover

    with interrupts() as received:
        replay.begin(restart=restart)
        verb = "resumes" if replay.is_resumed else "builds"
        topics = ", ".join(replay.new.topics.values())
        click.echo(f"{replay.new.name} {verb} {topics}", err=True)
        if not replay.catch_up(lambda: received.count > 0):
            replay.run.stop()
            click.echo("interrupted; run the same command again to resume", err=True)
            return
        replay.switch()
    for name, topic in replay.new.topics.items():
        click.echo(f"{name} is now {topic}, version {replay.new.number}")
    if drop_old:
        replay.drop_old()
        click.echo(f"deleted {', '.join(replay.old.topics.values())}")
    if not keep_running:
        replay.run.stop()
        replay.run.wait()
        return
    with Takeover(replay.run, replay.new, bootstrap) as takeover:
        follow([replay.run], console, started=True)
    if (new := takeover.superseded_by) is not None:
        click.echo(f"stopped: {new.name} is now {new.topic}, version {new.version}")


def _print_outputs(bootstrap: str) -> None:
    from millrace.pipelines.replay.output_pointer import all_outputs

    rows = []
    for name, output in sorted(all_outputs(bootstrap).items()):
        since = datetime.fromtimestamp(output.since / 1000).isoformat(" ", "seconds") if output.since else "-"
        building = output.next.topic if output.next is not None else "-"
        rows.append((name, str(output.version), output.topic, output.pipeline, since, building))
    if not rows:
        click.echo("no output has been replayed yet: each is in the topic that its pipeline declares")
        return
    headers = ("OUTPUT", "VERSION", "TOPIC", "PIPELINE", "SINCE", "BUILDING")
    if is_for_people():
        print_terminal_table(headers, rows)
    else:
        for row in [headers, *rows]:
            click.echo("\t".join(row))
