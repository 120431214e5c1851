"""`millrace leader-election`: Kafka's kafka-leader-election."""

from collections.abc import Iterable
from pathlib import Path

import click

from millrace.admin.reassignments import ElectionType, elect_leaders
from millrace.admin.topics import list_topics
from millrace.cli.reassign_partitions.plan_file import read_partitions
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, exactly_one
from millrace.cli.terminal.session import connected
from millrace.client import TopicPartition
from millrace.errors import Error


@click.command("leader-election", cls=KafkaCommand)
@broker_options(config_names=("--admin.config",))
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="The first replica, or any although records are lost.",
)
@click.option("--all-topic-partitions", is_flag=True, help="Every partition.")
@click.option("--topic", help="The topic of --partition.")
@click.option("--partition", type=click.IntRange(0), help="One partition of --topic.")
@click.option(
    "--path-to-json-file", type=click.Path(path_type=Path), metavar="FILE", help="The partitions, in a file."
)
def command(
    *,
    target: Target,
    election_type: str,
    all_topic_partitions: bool,
    topic: str | None,
    partition: int | None,
    path_to_json_file: Path | None,
) -> None:
    """Elect the leaders of partitions."""
    exactly_one(all_topic_partitions=all_topic_partitions, topic=topic, path_to_json_file=path_to_json_file)
    if topic is not None and partition is None:
        raise CommandError("--topic needs --partition")
    kind = ElectionType[election_type.upper()]
    with connected(target) as session:
        if path_to_json_file is not None:
            partitions = read_partitions(path_to_json_file)
        elif topic is not None and partition is not None:
            partitions = [TopicPartition(topic, partition)]
        else:
            described = session.run(list_topics(session.client)).values()
            partitions = [key for each in described for key in each.topic_partitions]
        outcomes = session.run(elect_leaders(session.client, partitions, kind))
    _say(f"Successfully completed leader election ({kind.name}) for partitions", outcomes.succeeded)
    not_needed = [key for key, error in outcomes.failed.items() if error.error is Error.ELECTION_NOT_NEEDED]
    _say("Valid replica already elected for partitions", not_needed)
    failed = {key: error for key, error in outcomes.failed.items() if key not in not_needed}
    for key, error in failed.items():
        click.echo(f"Error completing leader election ({kind.name}) for partition: {key}: {error.message}")
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")


def _say(what: str, partitions: Iterable[TopicPartition]) -> None:
    names = ", ".join(sorted(map(str, partitions)))
    if names:
        click.echo(f"{what} {names}")
