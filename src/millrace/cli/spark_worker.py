"""`millrace spark-worker`: a machine of a Spark standalone cluster."""

import sys
from pathlib import Path

import click

from millrace.cli.terminal.options import KafkaCommand
from millrace.topologies.spark.standalone import WORKER_PAGE_PORT, master_url, worker_command


@click.command("spark-worker", cls=KafkaCommand)
@click.option("--join", "master", required=True, metavar="HOST[:PORT]", help="The master's address.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this machine.")
@click.option("--cores", type=click.IntRange(1), help="Cores to offer.  [default: all]")
@click.option("--memory", metavar="SIZE", help="Memory to offer, such as 4g.  [default: all but 1 GB]")
@click.option(
    "--page-port",
    type=click.IntRange(0, 65535),
    default=WORKER_PAGE_PORT,
    show_default=True,
    help="Port of Spark's own pages.",
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path),
    default=Path("spark-work"),
    show_default=True,
    help="Scratch space and the logs of executors.",
)
def command(
    *, master: str, host: str, cores: int | None, memory: str | None, page_port: int, work_dir: Path
) -> None:
    """Offer this machine to a Spark cluster. Topologies use it from their next rebalance on."""
    click.echo(f"joins {master_url(master)}; Ctrl-C stops it")
    sys.stdout.flush()
    worker_command(
        master, host, page_port, cores=cores, memory=memory, work_dir=work_dir.absolute()
    ).execute()
