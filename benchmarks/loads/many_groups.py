"""Very many groups, each with a member and a committed offset."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import uvloop

from benchmarks import classic_member
from benchmarks.classic_member import ClassicMember
from benchmarks.group_settings import new_group
from benchmarks.percentiles import percentile
from benchmarks.target import Target
from benchmarks.usage import resident_bytes
from benchmarks.wire_client import WireClient, await_coordinators, commit_offset, expect_success
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
    clients = [await WireClient.connect(target.bootstrap) for _ in range(CONNECTIONS)]
    names = [new_group() for _ in range(count)]
    # So many that every partition of the topic of groups has one of them.
    await await_coordinators(clients[0], names[:500])
    with target.measured() as spent:
        members = await _for_all(clients, names, topic)
    megabytes = resident_bytes(target.pid) / 1e6
    listing = await _listing_seconds(clients[0], count)
    for group, member in members.items():
        await classic_member.leave(clients[0], group, [member])
    await _delete(clients[0], names)
    return {
        "seconds": spent.seconds,
        "broker CPU s": spent.broker_cpu_seconds,
        "broker resident, MB": megabytes,
        "list them, ms": listing * 1000,
    }


async def _for_all(clients: Sequence[WireClient], groups: Sequence[str], topic: str) -> dict[str, str]:
    """A member in every group, with an offset committed; returns the members' ids."""
    waiting = iter(groups)
    members: dict[str, str] = {}

    async def work(client: WireClient, waiting: Iterator[str]) -> None:
        for group in waiting:
            member = ClassicMember(client, group, topic)
            await member.join()
            await commit_offset(client, group, member.member_id, member.generation, topic, 1)
            members[group] = member.member_id

    await asyncio.gather(*(work(client, waiting) for client in clients))
    return members


async def _listing_seconds(client: WireClient, at_least: int) -> float:
    seconds = []
    for _ in range(LISTINGS):
        started = time.perf_counter()
        response = await client.ask(ListGroupsRequest(), ListGroupsResponse, LIST_VERSION)
        seconds.append(time.perf_counter() - started)
        expect_success(response.error_code)
        if len(response.groups) < at_least:
            raise RuntimeError(f"only {len(response.groups)} of {at_least} groups are listed")
    return percentile(seconds, 50)


async def _delete(client: WireClient, groups: Sequence[str]) -> None:
    for start in range(0, len(groups), DELETED_AT_ONCE):
        request = DeleteGroupsRequest(groups_names=list(groups[start : start + DELETED_AT_ONCE]))
        response = await client.ask(request, DeleteGroupsResponse, DELETE_VERSION)
        for result in response.results:
            expect_success(result.error_code)
