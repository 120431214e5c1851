"""Requests to the coordinators of groups, over connections light enough to have a thousand of."""

import asyncio
from collections.abc import Iterable

from benchmarks.loads.clients.raw import CLIENT_ID
from millrace.client import Connection, parse_addresses
from millrace.errors import Error, check
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

FIND_COORDINATOR_VERSION, OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION = 2, 7, 7
NOT_READY = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
RETRY_SECONDS = 0.005


async def connect(bootstrap: str) -> Connection:
    """A connection to a lone broker."""
    (address,) = parse_addresses(bootstrap)
    return await Connection.open(address, client_id=CLIENT_ID)


async def await_coordinators(connection: Connection, groups: Iterable[str]) -> None:
    """Have the broker create its topic of groups, and wait until it serves these groups."""
    for group in groups:
        request = FindCoordinatorRequest(key=group)
        while True:
            found = await connection.send_in(FIND_COORDINATOR_VERSION, request, FindCoordinatorResponse)
            if found.error_code not in NOT_READY:
                check(found.error_code)
                if await offsets_of(connection, group) is not None:
                    break
            await asyncio.sleep(RETRY_SECONDS)


async def offsets_of(connection: Connection, group: str) -> OffsetFetchResponse | None:
    """Every committed offset of a group; None while its coordinator is not ready."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    response = await connection.send_in(OFFSET_FETCH_VERSION, request, OffsetFetchResponse)
    if response.error_code in NOT_READY:
        return None
    check(response.error_code)
    return response


async def commit_offset(
    connection: Connection, group: str, member_id: str, generation: int, topic: str, offset: int
) -> None:
    """Commit a member's offset of partition 0."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    response = await connection.send_in(OFFSET_COMMIT_VERSION, request, OffsetCommitResponse)
    check(response.topics[0].partitions[0].error_code)
