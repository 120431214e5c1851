"""`millrace run`: runs pipelines on Spark over the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines import LogTopic, Pipeline
    from millrace.pipelines.replay.output_pointer import Version


@click.command("run", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("job", metavar="JOB")
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Directory of checkpoints.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option(
    "--from", "start", metavar="TIME", help="Run over history, from this time on (2026-11-01, -2h)."
)
@click.option("--to", "end", metavar="TIME", help="Run over history, up to this time.")
@click.option(
    "--output", "outputs", multiple=True, metavar="[NAME=]TOPIC", help="Write an output to another topic."
)
@click.option("--once", is_flag=True, help="Process what the inputs hold now, and exit.")
@click.option(
    "--explain",
    "--dry-run",
    is_flag=True,
    help="Print the mode, the reason for it and Spark's plan, and exit. For a project: check its graph.",
)
@click.option("--name", help="Another name for the pipeline, with its own checkpoint and consumer group.")
@click.option(
    "--delivery",
    type=click.Choice(["exactly-once", "at-least-once"]),
    help="How often results appear after a failure.",
)
@click.option(
    "--mode", type=click.Choice(["auto", "real-time", "micro-batch"]), help="How Spark runs the queries."
)
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="A Spark setting.")
@click.option(
    "--refresh", multiple=True, metavar="TABLES", help="For a project: update only these (comma-separated)."
)
@click.option(
    "--full-refresh", multiple=True, metavar="TABLES", help="For a project: empty and rebuild these."
)
@click.option("--full-refresh-all", is_flag=True, help="For a project: empty and rebuild everything.")
def command(**options: Any) -> int | None:
    """Run the pipelines of a Python file over the log, on Spark.

    JOB is a file that declares pipelines (job.py, or job.py:name for one of them), or a project of Spark's
    own declarative pipelines (a spark-pipeline.yml, or its directory).
    """
    from millrace.pipelines.declarative.project import find_project

    run = _Run(**options)
    run.target.refuse_security("pipelines")
    project = find_project(run.job)
    if project is not None:
        return run.run_project(project)
    run.run_pipelines()
    return None


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The options of the command, and the two programs that it runs."""

    target: Target
    job: str
    master: str | None
    checkpoints: str | None
    start: str | None
    end: str | None
    outputs: tuple[str, ...]
    once: bool
    explain: bool
    name: str | None
    delivery: str | None
    mode: str | None
    settings: tuple[str, ...]
    refresh: tuple[str, ...]
    full_refresh: tuple[str, ...]
    full_refresh_all: bool

    @property
    def is_over_history(self) -> bool:
        return self.start is not None or self.end is not None

    @property
    def conf(self) -> dict[str, str]:
        return parse_pairs(self.settings, "--conf")

    def run_project(self, project: Path) -> int:
        """Run a project of Spark's declarative pipelines."""
        refused = {"--from": self.start, "--to": self.end, "--output": self.outputs, "--name": self.name}
        refused |= {"--delivery": self.delivery, "--mode": self.mode, "--checkpoints": self.checkpoints}
        if given := [option for option, value in refused.items() if value]:
            raise CommandError(f"{', '.join(given)}: set this in the files of the declarative project")
        from millrace.pipelines.declarative.project import run_project

        return run_project(
            project,
            bootstrap=self.target.bootstrap,
            master=self.master,
            dry_run=self.explain,
            full_refresh=_names(self.full_refresh),
            full_refresh_all=self.full_refresh_all,
            refresh=_names(self.refresh),
            conf=self.conf,
        )

    def run_pipelines(self) -> None:
        """Run the pipelines of a Python file, after all checks that need no Spark."""
        from rich.console import Console

        console = Console(stderr=True)
        pipelines = self._pipelines()
        outputs = self._outputs(pipelines)
        if self.is_over_history:
            self._run_over_history(pipelines, outputs, console)
        else:
            self._run_live(pipelines, outputs, console)

    # Checks before Spark starts

    def _pipelines(self) -> list[Pipeline]:
        if self.refresh or self.full_refresh or self.full_refresh_all:
            raise CommandError(
                "only a declarative project has tables to refresh; to rebuild an output, use millrace replay"
            )
        if self.is_over_history and (self.once or self.explain):
            raise CommandError("--from and --to run a batch; drop --once and --explain")
        from millrace.pipelines.job_file import load

        pipelines = [self._changed(pipeline) for pipeline in load(self.job)]
        if len(pipelines) > 1 and (self.name or self.outputs):
            names = ", ".join(pipeline.name for pipeline in pipelines)
            raise CommandError(
                f"--name and --output apply to one pipeline, and {self.job} has {names};"
                f" write {self.job}:{pipelines[0].name}"
            )
        return [replace(pipelines[0], name=self.name)] if self.name else pipelines

    def _changed(self, pipeline: Pipeline) -> Pipeline:
        changes: dict[str, Any] = {"delivery": self.delivery, "mode": self.mode}
        return replace(pipeline, **{name: value for name, value in changes.items() if value})

    def _outputs(self, pipelines: list[Pipeline]) -> list[dict[str, LogTopic]]:
        from millrace.pipelines.run.options import redirected

        return [redirected(pipeline, self.outputs) for pipeline in pipelines]

    # Running

    def _run_live(
        self, pipelines: list[Pipeline], outputs: list[dict[str, LogTopic]], console: Console
    ) -> None:
        from millrace.pipelines.replay.output_pointer import current_version
        from millrace.pipelines.run import preflight

        bootstrap = self.target.bootstrap
        if not self.explain:
            preflight.wait_for_broker(
                bootstrap,
                lambda problem: console.print(f"waiting: {problem}", highlight=False, soft_wrap=True),
            )
        preflight.check(pipelines, bootstrap)
        versions = [current_version(pipeline, bootstrap) for pipeline in pipelines]
        with self._spark(pipelines) as spark:
            self._run_queries(spark, pipelines, outputs, versions, console)

    def _run_queries(
        self,
        spark: SparkSession,
        pipelines: list[Pipeline],
        outputs: list[dict[str, LogTopic]],
        versions: list[Version],
        console: Console,
    ) -> None:
        from millrace.pipelines.console.explanation import explanation
        from millrace.pipelines.console.foreground import follow
        from millrace.pipelines.replay.takeover import Takeover
        from millrace.pipelines.run import checkpoint
        from millrace.pipelines.run.lifecycle import Run
        from millrace.pipelines.run.options import RunOptions

        bootstrap = self.target.bootstrap
        runs = []
        for pipeline, redirected, version in zip(pipelines, outputs, versions, strict=True):
            options = RunOptions(
                checkpoints=checkpoint.directory(self.checkpoints),
                available_now=self.once,
                outputs=redirected or version.outputs,
                name=None if redirected else version.name,
            )
            runs.append(Run(pipeline, spark, bootstrap, options))
        if self.explain:
            for run in runs:
                click.echo(explanation(run))
            return
        with ExitStack() as watching:
            takeovers = [
                watching.enter_context(Takeover(run, version, bootstrap))
                for run, version in zip(runs, versions, strict=True)
                if not self.outputs
            ]
            follow(runs, console)
        for takeover in takeovers:
            if (new := takeover.superseded_by) is not None:
                click.echo(
                    f"stopped: {new.name} is now {new.topic}, version {new.version}, built by a replay"
                )

    def _run_over_history(
        self, pipelines: list[Pipeline], outputs: list[dict[str, LogTopic]], console: Console
    ) -> None:
        from millrace.pipelines.history.range import moment
        from millrace.pipelines.run import preflight

        start = None if self.start is None else moment(self.start)
        end = None if self.end is None else moment(self.end)
        preflight.check(pipelines, self.target.bootstrap)
        with self._spark(pipelines) as spark:
            from millrace.pipelines.history import batch

            for pipeline, redirected in zip(pipelines, outputs, strict=True):
                summary = batch.run(
                    pipeline,
                    spark,
                    self.target.bootstrap,
                    start=start,
                    end=end,
                    outputs=redirected,
                    console=console,
                )
                click.echo(str(summary))

    @contextmanager
    def _spark(self, pipelines: list[Pipeline]) -> Iterator[SparkSession]:
        """The Spark session; a session that ran before goes on running."""
        from millrace.pipelines.run.execution_mode import slots_for
        from millrace.pipelines.spark.session import is_running, session

        is_new = not is_running()
        slots = slots_for(pipelines, self.target.bootstrap, self.conf)
        names = ", ".join(pipeline.name for pipeline in pipelines)
        spark = session(names, master=self.master, slots=slots, settings=self.conf)
        try:
            yield spark
        finally:
            if is_new:
                spark.stop()


def _names(given: tuple[str, ...]) -> list[str]:
    return [name.strip() for part in given for name in part.split(",") if name.strip()]
