"""The commands of `millrace trident`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from millrace import __version__
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs

if TYPE_CHECKING:
    from millrace.trident.model.topology import TridentTopology


class TridentGroup(click.Group):
    """The commands, each with options that may be abbreviated."""

    command_class = KafkaCommand


@click.group("trident", cls=TridentGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="millrace %(version)s")
def command() -> None:
    """Run Trident topologies over the log, on Spark, and look into their states."""


@command.command("run")
@broker_options(broker_list=False)
@click.argument("file", metavar="FILE")
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Directory of checkpoints.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option("--name", help="Another name for the topology, with its own checkpoint.")
@click.option("--once", is_flag=True, help="Process what the log holds now, and exit.")
@click.option("--explain", is_flag=True, help="Print where each operator runs and why, and exit.")
@click.option("--adopt-state", is_flag=True, help="Add to states that another query has written.")
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="A Spark setting.")
def run(
    *,
    target: Target,
    file: str,
    master: str | None,
    checkpoints: str | None,
    name: str | None,
    once: bool,
    explain: bool,
    adopt_state: bool,
    settings: tuple[str, ...],
) -> None:
    """Run the Trident topology in FILE in the foreground, until Ctrl-C."""
    from millrace.trident.loading import load

    topology = load(file)
    if explain:
        from millrace.trident.model.explanation import explain as explanation

        click.echo(explanation(topology))
        return
    conf = parse_pairs(settings, "--conf")
    _run(topology, target, master, checkpoints, conf, name=name, available_now=once, adopt=adopt_state)


def _run(
    topology: TridentTopology,
    target: Target,
    master: str | None,
    checkpoints: str | None,
    settings: dict[str, str],
    **options: Any,
) -> None:
    from millrace.pipelines.console.foreground import interrupts
    from millrace.pipelines.kafka.client import require_reachable
    from millrace.pipelines.run import checkpoint
    from millrace.pipelines.spark.session import is_running, session
    from millrace.trident.spark.run import TridentRun

    target.refuse_security("Trident topologies")
    require_reachable(target.bootstrap)
    is_new = not is_running()
    spark = session(topology.name, master=master, settings=settings)
    run = TridentRun(
        topology,
        spark,
        target.bootstrap,
        checkpoints=checkpoint.directory(checkpoints),
        on_wait=lambda reason: click.echo(f"waiting: {reason}", err=True),
        **options,
    )
    click.echo(f"{run.name}: runs over {target.bootstrap}; Ctrl-C stops it after its batch", err=True)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run.run()
        except BaseException as error:
            failures.append(error)

    try:
        with interrupts() as received:
            working = threading.Thread(target=work, name="trident-run", daemon=True)
            working.start()
            handled = 0
            while working.is_alive():
                working.join(0.1)
                if received.count > handled:
                    handled = received.count
                    threading.Thread(target=run.stop, kwargs={"now": handled > 1}, daemon=True).start()
    finally:
        if is_new:
            spark.stop()
    if failures:
        raise failures[0]


@command.command("get")
@broker_options(broker_list=False)
@click.argument("file", metavar="FILE")
@click.argument("state", metavar="STATE")
@click.argument("key", nargs=-1, metavar="KEY...")
def get(*, target: Target, file: str, state: str, key: tuple[str, ...]) -> None:
    """Print the value of KEY in a STATE of the topology in FILE.

    KEY has a value for each field that the state is grouped by. A number is written as a number; text that
    looks like a number in quotes: '"42"'.
    """
    from millrace.trident.loading import load
    from millrace.trident.state import text

    topology = load(file)
    specs = {spec.name: spec for spec in topology.states()}
    if state not in specs:
        raise CommandError(f"{topology.name} has no state {state}; it has {', '.join(specs) or 'none'}")
    if not specs[state].is_outside:
        raise CommandError(f"the state {state} is in the memory of the process that runs {topology.name}")
    target.refuse_security("Trident topologies")
    opened = specs[state].open(target.bootstrap)
    try:
        [value] = opened.multi_get([[_typed(part) for part in key]])
    finally:
        opened.close()
    if value is None:
        raise CommandError(f"{state} has no value for {' '.join(key) or 'the empty key'}")
    click.echo(text.encode(value))


def _typed(value: str) -> Any:
    import json

    try:
        return json.loads(value)
    except ValueError:
        return value
