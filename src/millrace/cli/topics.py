"""`millrace topics`: Kafka's kafka-topics."""

from dataclasses import dataclass
from typing import Any

import click

from millrace.cli.client import Client, connected
from millrace.cli.describe_topics import describe_topics
from millrace.cli.errors import CommandError, check
from millrace.cli.options import KafkaCommand, Target, broker_options, exactly_one, parse_pairs
from millrace.cli.topic_pattern import topic_pattern
from millrace.errors import Error
from millrace.wire.messages import create_partitions, create_topics, delete_topics
from millrace.wire.messages.metadata import MetadataResponseTopic
from millrace.wire.schema import uuid_from_text

TIMEOUT_MS = 60_000
BROKER_DEFAULT = -1
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says besides the action."""

    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    delete_config: tuple[str, ...]
    if_exists: bool
    if_not_exists: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    topics_with_overrides: bool
    exclude_internal: bool
    partition_size_limit_per_response: int


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
    help="Broker ids per partition, instead of the two above.",
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
    "--at-min-isr-partitions", is_flag=True, help="Describe only those just at min.insync.replicas."
)
@click.option(
    "--topics-with-overrides", is_flag=True, help="Describe only topics with settings of their own."
)
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
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
    **rest: Any,
) -> None:
    """Create, list, describe, change and delete topics."""
    action = exactly_one(create=create, list=list_, describe=describe, alter=alter, delete=delete)
    wanted = Wanted(**rest)
    _check_combination(action, wanted)
    actions = {"create": _create, "list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
    with connected(target) as client:
        actions[action](client, wanted)


def _check_combination(action: str, wanted: Wanted) -> None:
    if wanted.delete_config or (action == "alter" and wanted.config):
        raise CommandError(
            "topics --alter no longer changes configs; use `millrace configs --alter --topic NAME`"
        )
    for option, actions in _BELONGS_TO.items():
        if action not in actions and getattr(wanted, option):
            raise CommandError(f"--{option.replace('_', '-')} cannot be used with --{action}")
    if action in ("create", "alter", "delete") and wanted.topic is None:
        raise CommandError(f"--{action} needs --topic NAME")
    if action == "alter" and wanted.partitions is None:
        raise CommandError("--alter needs --partitions N, the new number of partitions")
    if action == "create" and wanted.replica_assignment and (wanted.partitions or wanted.replication_factor):
        raise CommandError(
            "--replica-assignment already says the partitions and replicas; leave out the others"
        )
    if wanted.topic is not None and wanted.topic_id is not None:
        raise CommandError("say either --topic or --topic-id")


def _create(client: Client, wanted: Wanted) -> None:
    assert wanted.topic is not None
    if "." in wanted.topic or "_" in wanted.topic:
        click.echo(MIXED_NAME_WARNING, err=True)
    assignments = _parse_assignment(wanted.replica_assignment)
    topic = create_topics.CreatableTopic(
        name=wanted.topic,
        num_partitions=wanted.partitions or BROKER_DEFAULT,
        replication_factor=wanted.replication_factor or BROKER_DEFAULT,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
            for index, broker_ids in enumerate(assignments)
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=name, value=value)
            for name, value in parse_pairs(wanted.config, "--config").items()
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = client.send_to_controller(request, create_topics.CreateTopicsResponse).topics
    if result.error_code == Error.TOPIC_ALREADY_EXISTS and wanted.if_not_exists:
        return
    check(result.error_code, result.error_message)
    click.echo(f"Created topic {wanted.topic}.")


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


def _list(client: Client, wanted: Wanted) -> None:
    pattern = topic_pattern(wanted.topic) if wanted.topic else None
    for name in client.topics(exclude_internal=wanted.exclude_internal):
        if pattern is None or pattern.match(name):
            click.echo(name)


def _alter(client: Client, wanted: Wanted) -> None:
    assert wanted.partitions is not None
    assignments = _parse_assignment(wanted.replica_assignment)
    for name, topic in _matching(client, wanted).items():
        added = assignments[len(topic.partitions) :]
        request = create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(
                    name=name,
                    count=wanted.partitions,
                    assignments=[
                        create_partitions.CreatePartitionsAssignment(broker_ids=ids) for ids in added
                    ]
                    or None,
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        (result,) = client.send_to_controller(request, create_partitions.CreatePartitionsResponse).results
        check(result.error_code, result.error_message)


def _delete(client: Client, wanted: Wanted) -> None:
    names = list(_matching(client, wanted))
    if not names:
        return
    request = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=name) for name in names],
        topic_names=names,
        timeout_ms=TIMEOUT_MS,
    )
    for result in client.send_to_controller(request, delete_topics.DeleteTopicsResponse).responses:
        check(result.error_code, result.error_message)


def _describe(client: Client, wanted: Wanted) -> None:
    topics = _named_by_id(client, wanted) if wanted.topic_id else _matching(client, wanted)
    describe_topics(client, topics, wanted)


def _named_by_id(client: Client, wanted: Wanted) -> dict[str, MetadataResponseTopic]:
    assert wanted.topic_id is not None
    try:
        topic_id = uuid_from_text(wanted.topic_id)
    except ValueError:
        raise CommandError(f"--topic-id {wanted.topic_id}: that is not a topic id") from None
    found = {name: topic for name, topic in client.topics().items() if topic.topic_id == topic_id}
    if not found and not wanted.if_exists:
        raise CommandError(f"TopicId '{wanted.topic_id}' does not exist as expected")
    return found


def _matching(client: Client, wanted: Wanted) -> dict[str, MetadataResponseTopic]:
    """The topics that --topic names; none is an error unless --if-exists says otherwise."""
    topics = client.topics(exclude_internal=wanted.exclude_internal)
    if wanted.topic is None:
        return topics
    pattern = topic_pattern(wanted.topic)
    found = {name: topic for name, topic in topics.items() if pattern.match(name)}
    if not found and not wanted.if_exists:
        raise CommandError(
            f"Topic '{wanted.topic}' does not exist as expected; `millrace topics --list` shows what there is"
        )
    return found
