"""`millrace spark-master`: the master of a Spark standalone cluster."""

import sys

import click

from millrace.cli.terminal.options import KafkaCommand
from millrace.topologies.spark.standalone import MASTER_PAGE_PORT, MASTER_PORT, master_command


@click.command("spark-master", cls=KafkaCommand)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that workers and drivers connect to."
)
@click.option("--port", type=click.IntRange(0, 65535), default=MASTER_PORT, show_default=True)
@click.option(
    "--page-port",
    type=click.IntRange(0, 65535),
    default=MASTER_PAGE_PORT,
    show_default=True,
    help="Port of Spark's own pages.",
)
def command(*, host: str, port: int, page_port: int) -> None:
    """Start the master of a Spark cluster; workers join it, and `--master spark://HOST:7077` uses it."""
    click.echo(f"spark://{host}:{port}, pages at http://{host}:{page_port}; Ctrl-C stops it")
    sys.stdout.flush()
    master_command(host, port, page_port).execute()
