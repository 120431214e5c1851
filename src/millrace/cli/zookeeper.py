"""`millrace zookeeper`: Apache ZooKeeper's server, and Kafka's zookeeper-server-start."""

import os
import tempfile
from pathlib import Path

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, read_properties

DEFAULT_PORT = 2181
DEFAULT_DATA_DIR = Path("millrace-zookeeper")


@click.command("zookeeper", cls=KafkaCommand)
@click.argument(
    "properties_file", type=click.Path(path_type=Path), metavar="[zookeeper.properties]", required=False
)
@click.option("--port", type=click.IntRange(1, 65535), help=f"Port of clients.  [default: {DEFAULT_PORT}]")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help=f"Place of the data.  [default: {DEFAULT_DATA_DIR}]"
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1, with a file all]")
@click.option("--daemon", is_flag=True, hidden=True)
def command(
    *, properties_file: Path | None, port: int | None, data_dir: Path | None, host: str | None, daemon: bool
) -> None:
    """Start ZooKeeper, which coordinates the brokers of a cluster."""
    if daemon:
        raise CommandError("-daemon is not supported: ZooKeeper stays in the foreground; leave it to systemd")
    from millrace.jars import JarsUnavailable
    from millrace.zookeeper_server import command as server_command
    from millrace.zookeeper_server import is_serving, write_config

    settings = {} if properties_file is None else read_properties(properties_file)
    if port is not None or "clientPort" not in settings:
        settings["clientPort"] = str(port or DEFAULT_PORT)
    if data_dir is not None or "dataDir" not in settings:
        settings["dataDir"] = str((data_dir or DEFAULT_DATA_DIR).expanduser().absolute())
    if host is not None or properties_file is None:
        settings["clientPortAddress"] = host or "127.0.0.1"
    if is_serving(int(settings["clientPort"])):
        raise CommandError(f"port {settings['clientPort']} is in use, by a ZooKeeper; take another (--port)")
    try:
        Path(settings["dataDir"]).mkdir(parents=True, exist_ok=True)
        descriptor, config = tempfile.mkstemp(prefix="millrace-zoo-", suffix=".cfg")
        os.close(descriptor)
        write_config(Path(config), settings)
        arguments = server_command(Path(config))
    except JarsUnavailable as missing:
        raise CommandError(str(missing)) from missing
    except OSError as error:
        raise CommandError(
            f"cannot use the data directory {settings['dataDir']}: {error.strerror}"
        ) from error
    click.echo(f"ZooKeeper listens on port {settings['clientPort']}; data in {settings['dataDir']}")
    # The server takes the place of this process, so that signals reach it.
    os.execv(arguments[0], arguments)
