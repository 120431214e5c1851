"""Asks the leaders of partitions for offsets."""

from collections import defaultdict
from typing import TypeAlias

from millrace.cli.client import Client
from millrace.wire.messages import list_offsets as api

Place: TypeAlias = tuple[str, int]
ByLeader: TypeAlias = dict[int, list[Place]]

LATEST = -1
EARLIEST = -2
UNKNOWN_OFFSET = -1
CONSUMER = -1
TIMEOUT_MS = 30_000


def list_offsets(
    client: Client, by_leader: ByLeader, timestamp: int
) -> dict[Place, api.ListOffsetsPartitionResponse]:
    """What each partition's leader answers for a timestamp, or for LATEST or EARLIEST."""
    answers = {}
    for leader_id, places in by_leader.items():
        response = client.broker(leader_id).send(_request(places, timestamp), api.ListOffsetsResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                answers[topic.name, partition.partition_index] = partition
    return answers


def _request(places: list[Place], timestamp: int) -> api.ListOffsetsRequest:
    by_topic: dict[str, list[api.ListOffsetsPartition]] = defaultdict(list)
    for name, index in places:
        by_topic[name].append(api.ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return api.ListOffsetsRequest(
        replica_id=CONSUMER,
        timeout_ms=TIMEOUT_MS,
        topics=[api.ListOffsetsTopic(name=name, partitions=items) for name, items in by_topic.items()],
    )
