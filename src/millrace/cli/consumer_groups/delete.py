"""`--delete` and `--delete-offsets`."""

import click

from millrace.admin import groups
from millrace.admin.group_offsets import delete_offsets
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.partitions import parse_partitions
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.client import Client, TopicPartition
from millrace.errors import Error, KafkaError

_ABOUT_PARTITIONS = (
    Error.GROUP_SUBSCRIBED_TO_TOPIC,
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)
ALL_PARTITIONS = -1


async def delete_groups(client: Client, group_ids: list[str]) -> bool:
    """Delete groups with their offsets and print the results; False if one is left."""
    results = await groups.delete_groups(client, group_ids)
    deleted = ", ".join(f"'{group_id}'" for group_id in results.succeeded)
    if not results.failed:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return True
    print_failure("Deletion of some consumer groups failed:")
    for group_id, error in results.failed.items():
        click.echo(f"* Group '{group_id}' could not be deleted due to: {error.error.name}: {error.message}")
    if deleted:
        click.echo(f"\nThese consumer groups were deleted successfully: {deleted}")
    return False


async def delete_topic_offsets(client: Client, group_id: str, topics: tuple[str, ...]) -> bool:
    """Delete a group's offsets of some topics and print the results; False if one is left."""
    partitions, missing = await parse_partitions(client, topics)
    results = {TopicPartition(topic, ALL_PARTITIONS): Error.UNKNOWN_TOPIC_OR_PARTITION for topic in missing}
    try:
        deleted = await delete_offsets(client, group_id, partitions)
    except KafkaError as failure:
        print_failure(failure.message)
        results |= dict.fromkeys(partitions, failure.error)
    else:
        results |= dict.fromkeys(deleted.succeeded, Error.NONE)
        results |= {partition: error.error for partition, error in deleted.failed.items()}
        _print_summary(group_id, [error.error for error in deleted.failed.values()])
    click.echo()
    print_table(
        [Column("TOPIC", 15, grows=True), Column("PARTITION", 10), Column("STATUS", 15)],
        [
            (topic, None if index == ALL_PARTITIONS else index, _status(error))
            for (topic, index), error in sorted(results.items())
        ],
    )
    return all(error is Error.NONE for error in results.values())


def _print_summary(group_id: str, failures: list[Error]) -> None:
    if any(error in _ABOUT_PARTITIONS for error in failures):
        print_failure("Encountered some partition-level error, see the follow-up details.")
    elif failures:
        print_failure(f"Encountered some unknown error: {failures[0].name}")
    else:
        click.echo(f"Request succeeded for deleting offsets from group {group_id}.")


def _status(error: Error) -> str:
    return "Successful" if error is Error.NONE else f"Error: {error.message}"
