"""`millrace log-dirs`: Kafka's kafka-log-dirs."""

import json
import sys
from typing import Any

import click

from millrace.cli.client import Client, connected
from millrace.cli.errors import CommandError, check, known_error
from millrace.cli.options import KafkaCommand, Target, broker_options
from millrace.errors import Error
from millrace.wire.messages import describe_log_dirs as api


@click.command("log-dirs", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--describe", is_flag=True, help="Show the log directories; there is nothing else to do.")
@click.option("--topic-list", metavar="TOPIC,...", default="", help="Topics to show; all without it.")
@click.option("--broker-list", metavar="ID,...", default="", help="Brokers to ask; all without it.")
def command(*, target: Target, describe: bool, topic_list: str, broker_list: str) -> None:
    """Show how much the partitions take on disk: a table on a terminal, Kafka's JSON in a pipe."""
    if not describe:
        raise CommandError("log-dirs needs --describe")
    topics = {name.strip() for name in topic_list.split(",") if name.strip()}
    with connected(target) as client:
        broker_ids = _broker_ids(client, broker_list)
        brokers = [_describe(client, broker_id, topics) for broker_id in broker_ids]
    if sys.stdout.isatty():
        _print_table(brokers)
        return
    click.echo("Querying brokers for log directories information")
    click.echo(f"Received log directory information from brokers {','.join(map(str, broker_ids))}")
    click.echo(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))


def _broker_ids(client: Client, broker_list: str) -> list[int]:
    existing = sorted(broker.node_id for broker in client.metadata([]).brokers)
    if not broker_list:
        return existing
    try:
        asked = sorted({int(broker_id) for broker_id in broker_list.split(",")})
    except ValueError:
        raise CommandError(f"--broker-list {broker_list}: write broker ids with commas between") from None
    missing = [broker_id for broker_id in asked if broker_id not in existing]
    if missing:
        raise CommandError(
            f"The given brokers do not exist from --broker-list: {','.join(map(str, missing))}."
            f" Current existent brokers: {','.join(map(str, existing))}"
        )
    return asked


def _describe(client: Client, broker_id: int, topics: set[str]) -> dict[str, Any]:
    response = client.broker(broker_id).send(
        api.DescribeLogDirsRequest(topics=None), api.DescribeLogDirsResponse
    )
    check(response.error_code)
    return {"broker": broker_id, "logDirs": [_log_dir(result, topics) for result in response.results]}


def _log_dir(result: api.DescribeLogDirsResult, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": f"{topic.name}-{partition.partition_index}",
                "size": partition.partition_size,
                "offsetLag": partition.offset_lag,
                "isFuture": partition.is_future_key,
            }
            for topic in result.topics
            if not topics or topic.name in topics
            for partition in topic.partitions
        ],
        "error": None if result.error_code == Error.NONE else known_error(result.error_code).message,
        "logDir": result.log_dir,
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
