"""`--delete` and `--delete-offsets`."""

import click

from millrace.cli.client import Client
from millrace.cli.consumer_groups.committed import delete_offsets
from millrace.cli.consumer_groups.failures import print_failure
from millrace.cli.consumer_groups.partitions import leaders_of, parse_topic
from millrace.cli.consumer_groups.table import Column, print_table
from millrace.cli.coordinators import KeyType, by_broker, find_coordinators, until_coordinated
from millrace.cli.errors import known_error
from millrace.cli.offsets import Place
from millrace.errors import Error, KafkaError
from millrace.wire.messages import delete_groups as api

_ABOUT_PARTITIONS = (
    Error.GROUP_SUBSCRIBED_TO_TOPIC,
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)
ALL_OF_THEM = -1


def delete_groups(client: Client, group_ids: list[str]) -> bool:
    """Delete groups with their offsets and say what became of them; False when one is left."""
    results = until_coordinated(client, lambda: _delete(client, group_ids))
    deleted = ", ".join(f"'{group_id}'" for group_id, error in results.items() if error is Error.NONE)
    failed = {group_id: error for group_id, error in results.items() if error is not Error.NONE}
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return True
    print_failure("Deletion of some consumer groups failed:")
    for group_id, error in failed.items():
        click.echo(f"* Group '{group_id}' could not be deleted due to: {error.name}: {error.message}")
    if deleted:
        click.echo(f"\nThese consumer groups were deleted successfully: {deleted}")
    return False


def _delete(client: Client, group_ids: list[str]) -> dict[str, Error]:
    results: dict[str, Error] = {}
    for node_id, ids in by_broker(find_coordinators(client, group_ids, KeyType.GROUP)).items():
        request = api.DeleteGroupsRequest(groups_names=ids)
        for result in client.broker(node_id).send(request, api.DeleteGroupsResponse).results:
            error = known_error(result.error_code)
            if error.retriable:
                raise KafkaError(error)
            results[result.group_id] = error
    return results


def delete_topic_offsets(client: Client, group_id: str, topics: tuple[str, ...]) -> bool:
    """Delete a group's offsets of some topics and say what became of each; False when one is left."""
    places, results = _places(client, topics)
    failure, deleted = delete_offsets(client, group_id, places)
    results |= deleted
    failures = [error for error in deleted.values() if error is not Error.NONE]
    if failure is not Error.NONE:
        print_failure(failure.message)
    elif any(error in _ABOUT_PARTITIONS for error in failures):
        print_failure("Encountered some partition-level error, see the follow-up details.")
    elif failures:
        print_failure(f"Encountered some unknown error: {failures[0].name}")
    else:
        click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
    click.echo()
    print_table(
        [Column("TOPIC", 15, grows=True), Column("PARTITION", 10), Column("STATUS", 15)],
        [
            (topic, None if index == ALL_OF_THEM else index, _status(error))
            for (topic, index), error in sorted(results.items())
        ],
    )
    return all(error is Error.NONE for error in results.values())


def _places(client: Client, topics: tuple[str, ...]) -> tuple[list[Place], dict[Place, Error]]:
    """The partitions that the command line names, and an error for each topic that does not exist."""
    parsed = [parse_topic(text) for text in topics]
    existing = leaders_of(client, {topic for topic, indexes in parsed if indexes is None})
    places: list[Place] = []
    missing: dict[Place, Error] = {}
    for topic, indexes in parsed:
        if indexes is not None:
            places += [(topic, index) for index in indexes]
            continue
        found = [place for place in existing if place[0] == topic]
        places += found
        if not found:
            missing[topic, ALL_OF_THEM] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return places, missing


def _status(error: Error) -> str:
    return "Successful" if error is Error.NONE else f"Error: {error.message}"
