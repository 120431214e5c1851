"""The commands of `millrace topology`."""

from __future__ import annotations

from pathlib import Path

import click

from millrace import __version__
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.topology import explain, listing, observe, submit, verbs
from millrace.cli.topology.settings import typed_settings


class TopologyGroup(click.Group):
    """The commands, each with options that may be abbreviated."""

    command_class = KafkaCommand


@click.group("topology", cls=TopologyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="millrace %(version)s")
def command() -> None:
    """Run topologies of spouts and bolts over the log."""


for _added in (
    submit.submit,
    submit.update,
    listing.list_topologies,
    listing.describe,
    listing.logs,
    verbs.kill,
    verbs.activate,
    verbs.deactivate,
    verbs.rebalance,
    observe.errors,
    observe.monitor,
    observe.debug,
    explain.explain,
):
    command.add_command(_added)


@command.command("run")
@broker_options(broker_list=False)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--class", "class_name", metavar="NAME", help="The topology, if the file has several.")
@click.option("--name", help="Another name for the topology: its own offsets and state.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes.  [default: 1]")
@click.option("--config", "settings", multiple=True, metavar="K=V", help="Any setting of the topology.")
@click.option("--master", metavar="URL", help="Spark master.  [default: this machine]")
@click.option("--no-spark", is_flag=True, help="Run the workers as plain processes of this machine.")
@click.option("--once", is_flag=True, help="Process what the log has now, and end.")
@click.option(
    "--from", "start", metavar="TIME", help="Run over history from here (2026-11-01, -2h), and end."
)
@click.option("--to", "end", metavar="TIME", help="Run over history up to here, and end.")
def run(
    *,
    target: Target,
    file: Path,
    class_name: str | None,
    name: str | None,
    workers: int | None,
    settings: tuple[str, ...],
    master: str | None,
    no_spark: bool,
    once: bool,
    start: str | None,
    end: str | None,
) -> None:
    """Run the topology in FILE in the foreground, until Ctrl-C.

    With --from or --to it runs over history, under a name, offsets and state of its own, and ends.
    """
    from millrace.topologies.running import prepare, run_workers
    from millrace.topologies.supervisor.keys import find_signing_key

    job = prepare(
        file,
        target.bootstrap,
        class_name=class_name,
        name=name,
        workers=workers,
        config=typed_settings(settings),
        client=target.properties,
        signing_key=find_signing_key(target.bootstrap),
        over=None if start is None and end is None else (_milliseconds(start), _milliseconds(end)),
    )
    click.echo(f"{job.name}: {len(job.placement)} workers over {job.bootstrap}; Ctrl-C stops it", err=True)
    run_workers(job, master=master, spark=not no_spark, once=once)


def _milliseconds(text: str | None) -> int | None:
    """A moment in milliseconds since 1970; None for the ends of the log."""
    from datetime import datetime

    from millrace.pipelines.history.range import moment

    found = None if text is None else moment(text)
    return round(found.timestamp() * 1000) if isinstance(found, datetime) else None
