"""Offsets of partitions: the first, the last, and those of a time."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millrace.admin.partitions import by_topic
from millrace.client import Client, Connection, Outcomes, TopicPartition
from millrace.wire.messages import list_offsets as api

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
"""Stand in for a timestamp: the end of the log, its beginning, the record with the largest timestamp, ..."""

# The first version that knows a stand-in; older ones would take it for a time.
_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_ISOLATION_VERSION = 2
_CONSUMER = -1
_UNKNOWN = -1


class Isolation(IntEnum):
    """The readers whose end of the log is asked for."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ListedOffset(NamedTuple):
    """An offset, None if no record fits, with the timestamp and leader epoch of the record if known."""

    offset: int | None
    timestamp: int | None = None
    leader_epoch: int | None = None


async def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Outcomes[TopicPartition, ListedOffset]:
    """The first offset of each partition at or after a timestamp in ms, or that of LATEST, EARLIEST, ..."""

    async def call(
        connection: Connection, partitions: list[TopicPartition]
    ) -> Outcomes[TopicPartition, ListedOffset]:
        request = api.ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=isolation,
            timeout_ms=client.timeout_ms,
            topics=[
                api.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        api.ListOffsetsPartition(index, timestamp=timestamps[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        lowest = max(_FIRST_VERSIONS.get(timestamps[partition], 0) for partition in partitions)
        if isolation is Isolation.READ_COMMITTED:
            lowest = max(lowest, _ISOLATION_VERSION)
        return _outcomes_of(await connection.send(request, api.ListOffsetsResponse, lowest=lowest))

    return await client.call_leaders(timestamps, call)


def _outcomes_of(response: api.ListOffsetsResponse) -> Outcomes[TopicPartition, ListedOffset]:
    outcomes: Outcomes[TopicPartition, ListedOffset] = Outcomes()
    for topic in response.topics:
        for partition in topic.partitions:
            listed = ListedOffset(
                *(
                    None if value == _UNKNOWN else value
                    for value in (partition.offset, partition.timestamp, partition.leader_epoch)
                )
            )
            outcomes.add(TopicPartition(topic.name, partition.partition_index), listed, partition.error_code)
    return outcomes


async def end_offsets(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of those partitions that exist and have a leader now."""
    wanted = set(partitions)
    if not wanted:
        return {}
    led = {
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in (await client.metadata(sorted({topic for topic, _ in wanted}))).topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    listed = await list_offsets(client, dict.fromkeys(sorted(wanted & led), LATEST))
    return {
        partition: found.offset for partition, found in listed.succeeded.items() if found.offset is not None
    }
