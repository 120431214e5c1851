"""A client light enough to have a thousand of: one connection, one request at a time."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Self, TypeVar

from benchmarks.raw import CLIENT_ID
from millrace.errors import Error
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from millrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

FIND_COORDINATOR_VERSION, OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION = 2, 7, 7
NOT_YET = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
RETRY_SECONDS = 0.005
ERRORS = {int(error): error for error in Error}


class WireClient:
    """Owned by one coroutine: answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, bootstrap: str) -> Self:
        host, port = bootstrap.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    async def ask(self, request: Request, answer: type[R], version: int) -> R:
        self._writer.write(encode_request(request, version, 1, CLIENT_ID.decode()))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        _, response = read_response(answer, version, await self._reader.readexactly(size))
        return response

    def close(self) -> None:
        self._writer.close()


async def await_coordinators(client: WireClient, groups: Iterable[str]) -> None:
    """Have the brokers' topic of groups created, and wait until it serves these groups."""
    for group in groups:
        lookup = FindCoordinatorRequest(key=group)
        found = await client.ask(lookup, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
        while found.error_code in NOT_YET or await offsets_of(client, group) is None:
            await asyncio.sleep(RETRY_SECONDS)
            found = await client.ask(lookup, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
        expect_success(found.error_code)


async def offsets_of(client: WireClient, group: str) -> OffsetFetchResponse | None:
    """Every offset that a group has committed; None while its coordinator is not ready."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    response = await client.ask(request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
    if response.error_code in NOT_YET:
        return None
    expect_success(response.error_code)
    return response


async def commit_offset(
    client: WireClient, group: str, member_id: str, generation: int, topic: str, offset: int
) -> None:
    """Commit a member's offset of partition 0."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    response = await client.ask(request, OffsetCommitResponse, OFFSET_COMMIT_VERSION)
    expect_success(response.topics[0].partitions[0].error_code)


def expect_success(error_code: int) -> None:
    if error_code:
        raise RuntimeError(f"the broker answered with {ERRORS[error_code].name}")
