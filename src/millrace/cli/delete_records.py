"""`millrace delete-records`: Kafka's kafka-delete-records."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import click

from millrace.cli.client import Client, connected
from millrace.cli.errors import CommandError, known_error
from millrace.cli.options import KafkaCommand, Target, broker_options
from millrace.errors import Error
from millrace.wire.messages import delete_records as api

TIMEOUT_MS = 30_000
FORMAT = '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'

Place = tuple[str, int]


@click.command("delete-records", cls=KafkaCommand)
@broker_options()
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The offsets to delete up to, as {FORMAT}; -1 is the end.",
)
def command(*, target: Target, offset_json_file: Path) -> None:
    """Delete the records before given offsets."""
    offsets = _read_offsets(offset_json_file)
    click.echo("Executing records delete operation")
    with connected(target) as client:
        results = _delete(client, offsets)
    click.echo("Records delete operation completed:")
    for (topic, index), result in results.items():
        click.echo(f"partition: {topic}-{index}\t{result}")


def _read_offsets(path: Path) -> dict[Place, int]:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"Unable to read file {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    try:
        version = document.get("version", 1)
        places = [
            ((str(item["topic"]), int(item["partition"])), int(item["offset"]))
            for item in document["partitions"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CommandError(f"{path} is not in the right form; write {FORMAT}") from None
    if version != 1:
        raise CommandError(f"{path} has version {version}; only version 1 is known")
    twice = sorted(
        {
            f"{topic}-{index}"
            for (topic, index), _ in places
            if [p for p, _ in places].count((topic, index)) > 1
        }
    )
    if twice:
        raise CommandError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return dict(places)


def _delete(client: Client, offsets: dict[Place, int]) -> dict[Place, str]:
    """What became of each partition."""
    leaders = {
        (name, partition.partition_index): partition.leader_id
        for name, topic in client.topics().items()
        for partition in topic.partitions
    }
    results = {place: _failure(Error.UNKNOWN_TOPIC_OR_PARTITION) for place in offsets}
    by_leader: dict[int, dict[str, list[api.DeleteRecordsPartition]]] = defaultdict(lambda: defaultdict(list))
    for (topic, index), offset in offsets.items():
        leader_id = leaders.get((topic, index))
        if leader_id is not None:
            by_leader[leader_id][topic].append(
                api.DeleteRecordsPartition(partition_index=index, offset=offset)
            )
    for leader_id, topics in by_leader.items():
        request = api.DeleteRecordsRequest(
            topics=[api.DeleteRecordsTopic(name=name, partitions=items) for name, items in topics.items()],
            timeout_ms=TIMEOUT_MS,
        )
        for result in client.broker(leader_id).send(request, api.DeleteRecordsResponse).topics:
            for partition in result.partitions:
                results[result.name, partition.partition_index] = (
                    f"low_watermark: {partition.low_watermark}"
                    if partition.error_code == Error.NONE
                    else _failure(known_error(partition.error_code))
                )
    return results


def _failure(error: Error) -> str:
    return f"error: {error.name}: {error.message}"
