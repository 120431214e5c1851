"""`millrace log-dirs`: Kafka's kafka-log-dirs."""

import json
from typing import Any

import click

from millrace.admin.cluster import describe_cluster
from millrace.admin.log_dirs import LogDir, describe_log_dirs
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.terminal.session import connected
from millrace.cli.terminal.tables import is_for_people


@click.command("log-dirs", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--describe", is_flag=True, help="Show the log directories (required).")
@click.option("--topic-list", metavar="TOPIC,...", default="", help="Topics to show.  [default: all]")
@click.option("--broker-list", metavar="ID,...", default="", help="Brokers to show.  [default: all]")
def command(*, target: Target, describe: bool, topic_list: str, broker_list: str) -> None:
    """Show the size of partitions on disk: a table on a terminal, Kafka's JSON in a pipe."""
    if not describe:
        raise CommandError("log-dirs needs --describe")
    topics = {name.strip() for name in topic_list.split(",") if name.strip()}
    with connected(target) as session:
        existing = session.run(describe_cluster(session.client)).broker_ids
        broker_ids = _broker_ids(existing, broker_list)
        described = session.run(describe_log_dirs(session.client, broker_ids)).all()
    brokers = [
        {"broker": broker_id, "logDirs": [_log_dir(log_dir, topics) for log_dir in log_dirs]}
        for broker_id, log_dirs in described.items()
    ]
    if is_for_people():
        _print_table(brokers)
        return
    click.echo("Querying brokers for log directories information")
    click.echo(f"Received log directory information from brokers {','.join(map(str, broker_ids))}")
    click.echo(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))


def _broker_ids(existing: list[int], broker_list: str) -> list[int]:
    if not broker_list:
        return existing
    try:
        wanted = sorted({int(broker_id) for broker_id in broker_list.split(",")})
    except ValueError:
        raise CommandError(f"--broker-list {broker_list}: write broker ids separated by commas") from None
    missing = [broker_id for broker_id in wanted if broker_id not in existing]
    if missing:
        raise CommandError(
            f"The given brokers do not exist from --broker-list: {','.join(map(str, missing))}."
            f" Current existent brokers: {','.join(map(str, existing))}"
        )
    return wanted


def _log_dir(log_dir: LogDir, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(replica.partition),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for replica in log_dir.replicas
            if not topics or replica.partition.topic in topics
        ],
        "error": None if log_dir.error is None else log_dir.error.message,
        "logDir": log_dir.path,
    }


def _print_table(brokers: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    table = Table("broker", "log directory", "partition", box=None, header_style="bold")
    table.add_column("size", justify="right")
    for broker in brokers:
        for log_dir in broker["logDirs"]:
            where = (str(broker["broker"]), log_dir["logDir"])
            if log_dir["error"]:
                table.add_row(*where, f"[red]{log_dir['error']}[/]", "")
            partitions = sorted(log_dir["partitions"], key=lambda item: item["size"], reverse=True)
            for partition in partitions:
                table.add_row(*where, partition["partition"], decimal(partition["size"]))
            total = sum(partition["size"] for partition in partitions)
            table.add_row(*where, f"[bold]{len(partitions)} partitions[/]", f"[bold]{decimal(total)}[/]")
    Console().print(table)
