"""The options of `millrace topics`, and which of them go together."""

from typing import Any

import click

from millrace.admin.topics import (
    NewPartitions,
    NewTopic,
    TopicDescription,
    create_partitions,
    create_topics,
    delete_topics,
    list_topics,
)
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one, parse_pairs
from millrace.cli.terminal.session import connected
from millrace.cli.terminal.topic_pattern import topic_pattern
from millrace.cli.topics.describe import Selection, print_topics
from millrace.client import Client
from millrace.errors import Error
from millrace.wire.schema import uuid_from_text

MIXED_NAME_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could"
    " collide. To avoid issues it is best to use either, but not both."
)

# option -> the actions it goes with
_BELONGS_TO = {
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "config": ("create",),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "topic_id": ("describe",),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
    "topics_with_overrides": ("describe",),
    "exclude_internal": ("list", "describe"),
}


@click.command("topics", cls=KafkaCommand)
@broker_options()
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", "list_", is_flag=True, help="List the topics.")
@click.option("--describe", is_flag=True, help="Show the partitions and configuration of topics.")
@click.option("--alter", is_flag=True, help="Add partitions to topics.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; except with --create, a regular expression.")
@click.option("--topic-id", metavar="ID", help="The topic to describe, by its id.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions.")
@click.option("--replication-factor", type=click.IntRange(1), help="Copies of each partition.")
@click.option(
    "--replica-assignment",
    metavar="ID:ID,ID:ID,...",
    help="Broker ids for each partition, instead of the two above.",
)
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="A setting of the topic being created.")
@click.option("--delete-config", multiple=True, hidden=True)
@click.option("--if-exists", is_flag=True, help="Do nothing when the topic does not exist.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing when the topic exists already.")
@click.option("--under-replicated-partitions", is_flag=True, help="Describe only these partitions.")
@click.option("--unavailable-partitions", is_flag=True, help="Describe only those without a leader.")
@click.option(
    "--under-min-isr-partitions", is_flag=True, help="Describe only those below min.insync.replicas."
)
@click.option(
    "--at-min-isr-partitions", is_flag=True, help="Describe only those exactly at min.insync.replicas."
)
@click.option(
    "--topics-with-overrides", is_flag=True, help="Describe only topics with settings of their own."
)
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
@click.option("--partition-size-limit-per-response", type=click.IntRange(1), default=2000, hidden=True)
@click.option("--force", is_flag=True, hidden=True)
def command(
    *,
    target: Target,
    create: bool,
    list_: bool,
    describe: bool,
    alter: bool,
    delete: bool,
    force: bool,
    **options: Any,
) -> None:
    """Create, list, describe, change and delete topics."""
    action = exactly_one(create=create, list=list_, describe=describe, alter=alter, delete=delete)
    _check_combination(action, options)
    actions = {"create": _create, "list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
    with connected(target) as session:
        session.run(actions[action](session.client, options))


def _check_combination(action: str, options: dict[str, Any]) -> None:
    if options["delete_config"] or (action == "alter" and options["config"]):
        raise CommandError(
            "topics --alter no longer changes configs; use `millrace configs --alter --topic NAME`"
        )
    for option, actions in _BELONGS_TO.items():
        if action not in actions and options[option]:
            raise CommandError(f"--{option.replace('_', '-')} cannot be used with --{action}")
    if action in ("create", "alter", "delete") and options["topic"] is None:
        raise CommandError(f"--{action} needs --topic NAME")
    if action == "alter" and options["partitions"] is None:
        raise CommandError("--alter needs --partitions N, the new number of partitions")
    counts = options["partitions"] or options["replication_factor"]
    if action == "create" and options["replica_assignment"] and counts:
        raise CommandError(
            "--replica-assignment already gives the partitions and replicas; omit the other options"
        )
    if options["topic"] is not None and options["topic_id"] is not None:
        raise CommandError("give either --topic or --topic-id")


async def _create(client: Client, options: dict[str, Any]) -> None:
    name: str = options["topic"]
    if "." in name or "_" in name:
        click.echo(MIXED_NAME_WARNING, err=True)
    topic = NewTopic(
        name,
        partitions=options["partitions"],
        replication_factor=options["replication_factor"],
        assignments=_parse_assignment(options["replica_assignment"]),
        configs=parse_pairs(options["config"], "--config"),
    )
    created = await create_topics(client, [topic])
    error = created.failed.get(name)
    if error is not None and error.error is Error.TOPIC_ALREADY_EXISTS and options["if_not_exists"]:
        return
    created.all()
    click.echo(f"Created topic {name}.")


def _parse_assignment(text: str | None) -> list[list[int]]:
    if not text:
        return []
    try:
        assignments = [[int(broker_id) for broker_id in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise CommandError(
            f"--replica-assignment {text}: write broker ids, ':' between replicas and ',' between partitions"
        ) from None
    if any(len(set(replicas)) < len(replicas) for replicas in assignments):
        raise CommandError(f"--replica-assignment {text}: a partition names a broker twice")
    if len({len(replicas) for replicas in assignments}) > 1:
        raise CommandError(f"--replica-assignment {text}: every partition needs the same number of replicas")
    return assignments


async def _list(client: Client, options: dict[str, Any]) -> None:
    pattern = topic_pattern(options["topic"]) if options["topic"] else None
    for name, topic in (await list_topics(client)).items():
        if (pattern is None or pattern.match(name)) and not (
            options["exclude_internal"] and topic.is_internal
        ):
            click.echo(name)


async def _alter(client: Client, options: dict[str, Any]) -> None:
    assignments = _parse_assignment(options["replica_assignment"])
    for name, topic in (await _matching(client, options)).items():
        new = NewPartitions(options["partitions"], assignments[len(topic.partitions) :])
        (await create_partitions(client, {name: new})).all()


async def _delete(client: Client, options: dict[str, Any]) -> None:
    (await delete_topics(client, await _matching(client, options))).all()


async def _describe(client: Client, options: dict[str, Any]) -> None:
    topics = await (_named_by_id if options["topic_id"] else _matching)(client, options)
    await print_topics(
        client, topics, Selection.from_options(options), options["partition_size_limit_per_response"]
    )


async def _named_by_id(client: Client, options: dict[str, Any]) -> dict[str, TopicDescription]:
    text: str = options["topic_id"]
    try:
        topic_id = uuid_from_text(text)
    except ValueError:
        raise CommandError(f"--topic-id {text}: this is not a topic id") from None
    found = {name: topic for name, topic in (await list_topics(client)).items() if topic.topic_id == topic_id}
    if not found and not options["if_exists"]:
        raise CommandError(f"TopicId '{text}' does not exist as expected")
    return found


async def _matching(client: Client, options: dict[str, Any]) -> dict[str, TopicDescription]:
    """The topics that --topic names; it is an error if there are none, except with --if-exists."""
    topics = {
        name: topic
        for name, topic in (await list_topics(client)).items()
        if not (options["exclude_internal"] and topic.is_internal)
    }
    if options["topic"] is None:
        return topics
    pattern = topic_pattern(options["topic"])
    found = {name: topic for name, topic in topics.items() if pattern.match(name)}
    if not found and not options["if_exists"]:
        raise CommandError(
            f"Topic '{options['topic']}' does not exist as expected; `millrace topics --list` shows what"
            " there is"
        )
    return found
