"""`millrace run`: a pipeline on Spark over the log."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines import Pipeline
    from millrace.pipelines.outputs import Version


AWAY_SECONDS = 1.0


@click.command("run", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("job", metavar="JOB")
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Where runs keep how far they are.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option(
    "--from", "start", metavar="TIME", help="Not live, but over history: from here (2026-11-01, -2h)."
)
@click.option("--to", "end", metavar="TIME", help="Over history: up to here.")
@click.option(
    "--output", "outputs", multiple=True, metavar="[NAME=]TOPIC", help="Write to another topic than declared."
)
@click.option("--once", is_flag=True, help="Process what there is, and end.")
@click.option(
    "--explain",
    "--dry-run",
    is_flag=True,
    help="Say how it would run and why, with Spark's plan, and end; of a project, check the graph.",
)
@click.option("--name", help="Another name for the pipeline: its own checkpoint and consumer group.")
@click.option(
    "--delivery",
    type=click.Choice(["exactly-once", "at-least-once"]),
    help="How often results appear if something fails.",
)
@click.option(
    "--mode", type=click.Choice(["auto", "real-time", "micro-batch"]), help="Let the plan decide, or not."
)
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="Any Spark setting.")
@click.option(
    "--refresh", multiple=True, metavar="TABLES", help="Of a project: only these, separated by commas."
)
@click.option(
    "--full-refresh", multiple=True, metavar="TABLES", help="Of a project: empty these, fill them anew."
)
@click.option("--full-refresh-all", is_flag=True, help="Of a project: empty everything, fill it anew.")
def command(
    *,
    target: Target,
    job: str,
    master: str | None,
    checkpoints: str | None,
    start: str | None,
    end: str | None,
    outputs: tuple[str, ...],
    once: bool,
    explain: bool,
    name: str | None,
    delivery: str | None,
    mode: str | None,
    settings: tuple[str, ...],
    refresh: tuple[str, ...],
    full_refresh: tuple[str, ...],
    full_refresh_all: bool,
) -> int | None:
    """Run the pipelines of a Python file over the log, on Spark.

    JOB is a file that declares pipelines (job.py, or job.py:name for one of them), or a project of Spark's
    own declarative pipelines (a spark-pipeline.yml, or the directory that has one).
    """
    from millrace.pipelines.declarative import find_project

    conf = parse_pairs(settings, "--conf")
    if (project := find_project(job)) is not None:
        refused = {"--from": start, "--to": end, "--output": outputs, "--name": name}
        refused |= {"--delivery": delivery, "--mode": mode, "--checkpoints": checkpoints}
        if given := [option for option, value in refused.items() if value]:
            raise CommandError(f"{', '.join(given)}: a declarative project says that in its own files")
        from millrace.pipelines.declarative import run_project

        return run_project(
            project,
            bootstrap=target.bootstrap,
            master=master,
            dry_run=explain,
            full_refresh=_names(full_refresh),
            full_refresh_all=full_refresh_all,
            refresh=_names(refresh),
            conf=conf,
        )
    if refresh or full_refresh or full_refresh_all:
        raise CommandError(
            "only a declarative project has tables to refresh; to compute anew, millrace replay"
        )

    from rich.console import Console

    from millrace.pipelines.pipeline import load
    from millrace.pipelines.spark_session import is_running

    over_history = start is not None or end is not None
    if over_history and (once or explain):
        raise CommandError("--from and --to run a batch, which --once and --explain do not go with")
    chosen = [_changed(one, delivery, mode) for one in load(job)]
    if len(chosen) > 1 and (name or outputs):
        names = ", ".join(one.name for one in chosen)
        raise CommandError(
            f"--name and --output mean one pipeline, and {job} has {names}; write {job}:{chosen[0].name}"
        )
    if name:
        chosen = [replace(chosen[0], name=name)]
    console = Console(stderr=True)
    is_mine = not is_running()
    spark = _session(chosen, target.bootstrap, master, conf)
    try:
        if over_history:
            _run_batches(chosen, spark, target.bootstrap, start, end, outputs, console)
        else:
            _run_streams(chosen, spark, target.bootstrap, checkpoints, outputs, once, explain, console)
    finally:
        if is_mine:
            spark.stop()
    return None


def _changed(pipeline: Pipeline, delivery: str | None, mode: str | None) -> Pipeline:
    changes: dict[str, Any] = {"delivery": delivery, "mode": mode}
    return replace(pipeline, **{name: value for name, value in changes.items() if value})


def _session(
    pipelines: list[Pipeline], bootstrap: str, master: str | None, conf: dict[str, str]
) -> SparkSession:
    from millrace.pipelines.modes import slots_for
    from millrace.pipelines.spark_session import session

    name = ", ".join(one.name for one in pipelines)
    return session(name, master=master, slots=slots_for(pipelines, bootstrap, conf), settings=conf)


def _run_streams(
    pipelines: list[Pipeline],
    spark: SparkSession,
    bootstrap: str,
    checkpoints: str | None,
    outputs: tuple[str, ...],
    once: bool,
    explain: bool,
    console: Console,
) -> None:
    from millrace.pipelines import checkpoint, history
    from millrace.pipelines.explaining import explanation
    from millrace.pipelines.foreground import follow
    from millrace.pipelines.running import Run
    from millrace.pipelines.takeover import Takeover

    versions = _current_versions(pipelines, bootstrap, console, is_patient=not explain)
    runs = [
        Run(
            one,
            spark,
            bootstrap,
            checkpoints=checkpoint.directory(checkpoints),
            available_now=once,
            outputs=history.redirected(one, outputs) or version.outputs,
            name=None if outputs else version.name,
        )
        for one, version in zip(pipelines, versions, strict=True)
    ]
    if explain:
        for run in runs:
            click.echo(explanation(run))
        return
    with ExitStack() as watching:
        takeovers = [
            watching.enter_context(Takeover(run, version, bootstrap))
            for run, version in zip(runs, versions, strict=True)
            if not outputs
        ]
        follow(runs, console)
    for takeover in takeovers:
        if (by := takeover.by) is not None:
            click.echo(f"stopped: {by.name} is now {by.topic}, version {by.version}, built by a replay")


def _current_versions(
    pipelines: list[Pipeline], bootstrap: str, console: Console, *, is_patient: bool
) -> list[Version]:
    """The versions that readers read, which a replay may have moved on; waits for a broker that is away."""
    from millrace.pipelines.errors import BrokerAway
    from millrace.pipelines.outputs import current_version

    told = False
    while True:
        try:
            return [current_version(one, bootstrap) for one in pipelines]
        except BrokerAway as error:
            if not is_patient:
                raise
            if not told:
                console.print(f"waiting: {error}", highlight=False, soft_wrap=True)
            told = True
            time.sleep(AWAY_SECONDS)


def _run_batches(
    pipelines: list[Pipeline],
    spark: SparkSession,
    bootstrap: str,
    start: str | None,
    end: str | None,
    outputs: tuple[str, ...],
    console: Console,
) -> None:
    from millrace.pipelines import history

    for one in pipelines:
        summary = history.run(
            one,
            spark,
            bootstrap,
            start=None if start is None else history.moment(start),
            end=None if end is None else history.moment(end),
            outputs=history.redirected(one, outputs),
            console=console,
        )
        click.echo(str(summary))


def _names(given: tuple[str, ...]) -> list[str]:
    return [name.strip() for part in given for name in part.split(",") if name.strip()]
