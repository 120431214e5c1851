"""`millrace delete-records`: Kafka's kafka-delete-records."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from millrace.admin.records import delete_records
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.terminal.session import connected
from millrace.client import TopicPartition

FORMAT = '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'


@click.command("delete-records", cls=KafkaCommand)
@broker_options()
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Offsets to delete up to, as {FORMAT}; -1 is the end.",
)
def command(*, target: Target, offset_json_file: Path) -> None:
    """Delete the records before given offsets."""
    offsets = _read_offsets(offset_json_file)
    click.echo("Executing records delete operation")
    with connected(target) as session:
        deleted = session.run(delete_records(session.client, offsets))
    click.echo("Records delete operation completed:")
    for partition in offsets:
        if partition in deleted.failed:
            error = deleted.failed[partition]
            click.echo(f"partition: {partition}\terror: {error.error.name}: {error.message}")
        else:
            click.echo(f"partition: {partition}\tlow_watermark: {deleted[partition]}")


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"Unable to read file {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    try:
        version = document.get("version", 1)
        offsets = [
            (TopicPartition(str(item["topic"]), int(item["partition"])), int(item["offset"]))
            for item in document["partitions"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CommandError(f"{path} has the wrong format; write {FORMAT}") from None
    if version != 1:
        raise CommandError(f"{path} has version {version}; only version 1 is supported")
    counts = Counter(partition for partition, _ in offsets)
    repeated = [str(partition) for partition in sorted(counts) if counts[partition] > 1]
    if repeated:
        raise CommandError(f"Offset json file contains duplicate topic partitions: {','.join(repeated)}")
    return dict(offsets)
