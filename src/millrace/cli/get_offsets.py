"""`millrace get-offsets`: Kafka's kafka-get-offsets."""

import re
from collections.abc import Callable

import click

from millrace.admin import offsets
from millrace.admin.offsets import list_offsets
from millrace.admin.topics import list_topics
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.terminal.session import connected
from millrace.cli.terminal.topic_pattern import topic_pattern
from millrace.client import Client, TopicPartition

Selects = Callable[[str, int], bool]

TIMES = {
    "latest": offsets.LATEST,
    "earliest": offsets.EARLIEST,
    "max-timestamp": offsets.MAX_TIMESTAMP,
    "earliest-local": offsets.EARLIEST_LOCAL,
    "latest-tiered": offsets.LATEST_TIERED,
    "earliest-pending-upload": offsets.EARLIEST_PENDING_UPLOAD,
}

_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<only>\d+)|(?P<from>\d*)-(?P<to>\d*)|))?\Z")


@click.command("get-offsets", cls=KafkaCommand)
@broker_options()
@click.option("--topic", metavar="REGEX", help="Topics to show.  [default: all]")
@click.option("--partitions", metavar="N,N,...", help="Partitions to show.  [default: all]")
@click.option(
    "--topic-partitions",
    metavar="RULE,...",
    help="Rules instead of the two above: t, t:1, t:0-3 (without 3), t:5-, t:-3.",
)
@click.option(
    "--time",
    "time_text",
    default="latest",
    show_default=True,
    metavar="TIMESTAMP|NAME",
    help=f"A timestamp in ms, or one of {', '.join(TIMES)} (or their numbers -1 to -6).",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Omit internal topics.")
def command(
    *,
    target: Target,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time_text: str,
    exclude_internal_topics: bool,
) -> None:
    """Print the offsets of partitions as topic:partition:offset."""
    if topic_partitions and (topic or partitions):
        raise CommandError("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _timestamp(time_text)
    selects = _by_rules(topic_partitions) if topic_partitions else _by_lists(topic, partitions)
    with connected(target) as session:
        selected = session.run(_selected(session.client, selects, exclude_internal_topics))
        found = session.run(_offsets(session.client, selected, timestamp))
    # Kafka's tool orders partitions by their text.
    for (name, index), offset in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        click.echo(f"{name}:{index}:{offset}")


def _timestamp(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise CommandError(
            f"Malformed time argument {text}; use a timestamp in ms or one of {', '.join(TIMES)}"
        ) from None


def _by_lists(topic: str | None, partitions: str | None) -> Selects:
    pattern = topic_pattern(topic) if topic else None
    try:
        indexes = {int(index) for index in partitions.split(",")} if partitions else None
    except ValueError:
        raise CommandError(f"--partitions {partitions}: write numbers separated by commas") from None
    return lambda name, index: (
        (pattern is None or bool(pattern.match(name))) and (indexes is None or index in indexes)
    )


def _by_rules(text: str) -> Selects:
    rules = [_rule(part) for part in text.split(",")]
    return lambda name, index: any(rule(name, index) for rule in rules)


def _rule(text: str) -> Selects:
    parsed = _RULE.match(text)
    if parsed is None:
        raise CommandError(
            f"--topic-partitions {text}: write topic, topic:N, topic:N-M, topic:N- or topic:-M"
        )
    pattern = topic_pattern(parsed["topic"] or ".*")
    if parsed["only"] is not None:
        first = int(parsed["only"])
        end: int | None = first + 1
    else:
        first = int(parsed["from"] or 0)
        end = int(parsed["to"]) if parsed["to"] else None
    return lambda name, index: bool(pattern.match(name)) and first <= index and (end is None or index < end)


async def _selected(client: Client, selects: Selects, exclude_internal: bool) -> list[TopicPartition]:
    """The selected partitions that have a leader."""
    selected = []
    found = False
    for name, topic in (await list_topics(client)).items():
        if exclude_internal and topic.is_internal:
            continue
        for partition in topic.partitions:
            if not selects(name, partition.index):
                continue
            found = True
            if partition.leader is None:
                click.echo(
                    f"Error: topic-partition {name}:{partition.index} does not have a leader."
                    " Skip getting offsets",
                    err=True,
                )
            else:
                selected.append(TopicPartition(name, partition.index))
    if not found:
        raise CommandError("Could not match any topic-partitions with the specified filters")
    return selected


async def _offsets(
    client: Client, partitions: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    listed = await list_offsets(client, dict.fromkeys(partitions, timestamp))
    for (topic, index), error in listed.failed.items():
        click.echo(
            f"Skip getting offsets for topic-partition {topic}:{index} due to error: {error.message}",
            err=True,
        )
    return {
        partition: found.offset for partition, found in listed.succeeded.items() if found.offset is not None
    }
