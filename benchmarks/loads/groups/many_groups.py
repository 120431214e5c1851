"""Many groups, each with a member and a committed offset."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import uvloop

from benchmarks.loads.groups import classic_member
from benchmarks.loads.groups.classic_member import ClassicMember
from benchmarks.loads.groups.coordinators import await_coordinators, commit_offset, connect
from benchmarks.loads.groups.settings import new_group
from benchmarks.loads.latency import percentile
from benchmarks.machine.usage import resident_bytes
from benchmarks.target import Target
from millrace.client import Connection
from millrace.errors import check
from millrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CONNECTIONS = 32
LISTINGS = 5
DELETED_AT_ONCE = 500
LIST_VERSION, DELETE_VERSION = 5, 2


def created(target: Target, *, topic: str, groups: int) -> dict[str, float]:
    """Let a member join each group and commit; then list the groups, and delete them."""
    return uvloop.run(_created(target, topic, groups))


async def _created(target: Target, topic: str, count: int) -> dict[str, float]:
    connections = [await connect(target.bootstrap) for _ in range(CONNECTIONS)]
    names = [new_group() for _ in range(count)]
    # Enough for every partition of __consumer_offsets.
    await await_coordinators(connections[0], names[:500])
    with target.measured() as spent:
        members = await _for_all(connections, names, topic)
    megabytes = resident_bytes(target.pid) / 1e6
    listing = await _listing_seconds(connections[0], count)
    for group, member in members.items():
        await classic_member.leave(connections[0], group, [member])
    await _delete(connections[0], names)
    return {
        "seconds": spent.seconds,
        "broker CPU s": spent.broker_cpu_seconds,
        "broker resident, MB": megabytes,
        "list them, ms": listing * 1000,
    }


async def _for_all(connections: Sequence[Connection], groups: Sequence[str], topic: str) -> dict[str, str]:
    """Join every group with a member and commit an offset; returns the members' ids."""
    waiting = iter(groups)
    members: dict[str, str] = {}

    async def work(connection: Connection, waiting: Iterator[str]) -> None:
        for group in waiting:
            member = ClassicMember(connection, group, topic)
            await member.join()
            await commit_offset(connection, group, member.member_id, member.generation, topic, 1)
            members[group] = member.member_id

    await asyncio.gather(*(work(connection, waiting) for connection in connections))
    return members


async def _listing_seconds(connection: Connection, at_least: int) -> float:
    seconds = []
    for _ in range(LISTINGS):
        started = time.perf_counter()
        response = await connection.send_in(LIST_VERSION, ListGroupsRequest(), ListGroupsResponse)
        seconds.append(time.perf_counter() - started)
        check(response.error_code)
        if len(response.groups) < at_least:
            raise RuntimeError(f"only {len(response.groups)} of {at_least} groups are listed")
    return percentile(seconds, 50)


async def _delete(connection: Connection, groups: Sequence[str]) -> None:
    for start in range(0, len(groups), DELETED_AT_ONCE):
        request = DeleteGroupsRequest(groups_names=list(groups[start : start + DELETED_AT_ONCE]))
        response = await connection.send_in(DELETE_VERSION, request, DeleteGroupsResponse)
        for result in response.results:
            check(result.error_code)
