"""Committed offsets: asks the coordinators for them, sets them, deletes them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from millrace.cli.client import Client, Connection
from millrace.cli.coordinators import KeyType, by_broker, find_coordinators, until_coordinated
from millrace.cli.errors import check, known_error
from millrace.cli.offsets import Place
from millrace.errors import Error
from millrace.wire.messages import offset_commit as commit_api
from millrace.wire.messages import offset_delete as delete_api
from millrace.wire.messages import offset_fetch as fetch_api

# The last versions that name topics; the next ones have ids, which a topic that is gone no longer has.
FETCH_BY_NAME, COMMIT_BY_NAME = 9, 9
# From this version on, one request asks for several groups.
BATCHED_VERSION = 8
NO_OFFSET = -1
UNKNOWN_EPOCH = -1


class Committed(NamedTuple):
    """An offset that a group goes on from, and the epoch of the leader it was read from."""

    offset: int
    leader_epoch: int | None


Offsets = dict[Place, Committed]


def committed_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, Offsets]:
    """Every committed offset of each group."""
    wanted = list(group_ids)
    return until_coordinated(client, lambda: _fetch(client, wanted))


def _fetch(client: Client, group_ids: list[str]) -> dict[str, Offsets]:
    fetched: dict[str, Offsets] = {}
    for node_id, ids in by_broker(find_coordinators(client, group_ids, KeyType.GROUP)).items():
        connection = client.broker(node_id)
        version = connection.best_version(fetch_api.OffsetFetchRequest, FETCH_BY_NAME) or 0
        if version >= BATCHED_VERSION:
            fetched |= _fetch_together(connection, ids)
        else:
            fetched |= {group_id: _fetch_one(connection, group_id) for group_id in ids}
    return fetched


def _fetch_together(connection: Connection, group_ids: list[str]) -> dict[str, Offsets]:
    request = fetch_api.OffsetFetchRequest(
        groups=[fetch_api.OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    )
    response = connection.send(request, fetch_api.OffsetFetchResponse, FETCH_BY_NAME)
    for group in response.groups:
        check(group.error_code)
    return {group.group_id: _offsets(group.topics) for group in response.groups}


def _fetch_one(connection: Connection, group_id: str) -> Offsets:
    request = fetch_api.OffsetFetchRequest(group_id=group_id, topics=None)
    response = connection.send(request, fetch_api.OffsetFetchResponse, FETCH_BY_NAME)
    check(response.error_code)
    return _offsets(response.topics)


def _offsets(
    topics: Iterable[fetch_api.OffsetFetchResponseTopic | fetch_api.OffsetFetchResponseTopics],
) -> Offsets:
    offsets = {}
    for topic in topics:
        for partition in topic.partitions:
            check(partition.error_code)
            if partition.committed_offset != NO_OFFSET:
                epoch = partition.committed_leader_epoch
                offsets[topic.name, partition.partition_index] = Committed(
                    partition.committed_offset, None if epoch == UNKNOWN_EPOCH else epoch
                )
    return offsets


def commit_offsets(client: Client, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Set the offsets of a group without members."""
    by_topic: dict[str, list[commit_api.OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in offsets.items():
        by_topic[topic].append(
            commit_api.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
        )
    request = commit_api.OffsetCommitRequest(
        group_id=group_id,
        topics=[
            commit_api.OffsetCommitRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )

    def ask() -> None:
        connection = _coordinator(client, group_id)
        response = connection.send(request, commit_api.OffsetCommitResponse, COMMIT_BY_NAME)
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code)

    until_coordinated(client, ask)


def delete_offsets(
    client: Client, group_id: str, places: Collection[Place]
) -> tuple[Error, dict[Place, Error]]:
    """What became of the request, and of each partition."""
    by_topic: dict[str, list[delete_api.OffsetDeleteRequestPartition]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(delete_api.OffsetDeleteRequestPartition(partition_index=index))
    request = delete_api.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            delete_api.OffsetDeleteRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )

    def ask() -> delete_api.OffsetDeleteResponse:
        response = _coordinator(client, group_id).send(request, delete_api.OffsetDeleteResponse)
        if known_error(response.error_code).retriable:
            check(response.error_code)
        return response

    response = until_coordinated(client, ask)
    error = known_error(response.error_code)
    results = dict.fromkeys(places, error)
    for result in response.topics:
        for partition in result.partitions:
            results[result.name, partition.partition_index] = known_error(partition.error_code)
    return error, results


def _coordinator(client: Client, group_id: str) -> Connection:
    return client.broker(find_coordinators(client, [group_id], KeyType.GROUP)[group_id].node_id)
