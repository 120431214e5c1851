"""The commands of `millrace cluster`."""

from pathlib import Path

import click

from millrace import __version__
from millrace.cli.cluster.describe import print_cluster
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs


class ClusterGroup(click.Group):
    """The commands, each with options that may be abbreviated."""

    command_class = KafkaCommand


@click.group("cluster", cls=ClusterGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="millrace %(version)s")
def command() -> None:
    """Start a cluster on this machine, and look at any."""


@command.command("up")
@click.option(
    "--brokers", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of brokers."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="Of the first broker; the others follow.",
)
@click.option("--zookeeper-port", type=click.IntRange(1, 65535), default=2181, show_default=True)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("millrace-cluster"),
    show_default=True,
    help="Where the logs of all brokers are kept.",
)
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Any broker option, for all brokers.")
def up(*, brokers: int, port: int, zookeeper_port: int, data_dir: Path, settings: tuple[str, ...]) -> None:
    """Start brokers and a ZooKeeper on this machine, for development."""
    from millrace.cli.cluster.up import run

    run(brokers, port, zookeeper_port, data_dir.expanduser().absolute(), parse_pairs(settings, "--set"))


@command.command("describe")
@broker_options()
def describe(*, target: Target) -> None:
    """Show the brokers, the controller, and the partitions that lack replicas or a leader."""
    print_cluster(target)
