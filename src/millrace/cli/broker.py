"""`millrace broker`: Kafka's kafka-server-start, on a Kafka properties file as it is."""

from pathlib import Path

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, parse_pairs, read_properties


@click.command("broker", cls=KafkaCommand)
@click.argument("properties_file", type=click.Path(path_type=Path), metavar="server.properties")
@click.option(
    "--override", multiple=True, metavar="K=V", help="A property that counts instead of the file's."
)
@click.option("--standalone", is_flag=True, help="Run alone, although the file has zookeeper.connect.")
@click.option("--daemon", is_flag=True, hidden=True)
def command(*, properties_file: Path, override: tuple[str, ...], standalone: bool, daemon: bool) -> None:
    """Start a broker from a Kafka properties file; zookeeper.connect makes it join a cluster."""
    if daemon:
        raise CommandError(
            "-daemon is not supported: the broker stays in the foreground; leave it to systemd, or run it as"
            f" `nohup millrace broker {properties_file} >broker.log 2>&1 &`"
        )
    from millrace.cli.terminal.foreground import log_to_stderr, run
    from millrace.config import BrokerConfig

    log_to_stderr()
    properties = read_properties(properties_file) | parse_pairs(override, "--override")
    run(BrokerConfig.from_properties(properties), joins=not standalone)
