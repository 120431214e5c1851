"""Many members in one group: time until each has its partitions."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence

import uvloop

from benchmarks.loads.groups import classic_member
from benchmarks.loads.groups.classic_member import ClassicMember
from benchmarks.loads.groups.consumer_member import ConsumerMember
from benchmarks.loads.groups.coordinators import await_coordinators, connect
from benchmarks.loads.groups.settings import HEARTBEAT_MS, new_group
from benchmarks.target import Target
from millrace.client import Connection

PATIENCE_SECONDS = 120


def classic(target: Target, *, topic: str, members: int) -> dict[str, float]:
    """Join a classic group, until all members have their assignment in one generation."""
    return uvloop.run(_classic(target, topic, members))


def consumer(target: Target, *, topic: str, members: int) -> dict[str, float]:
    """Join a consumer group, until each member has its share of the partitions."""
    return uvloop.run(_consumer(target, topic, members))


async def _classic(target: Target, topic: str, count: int) -> dict[str, float]:
    group = new_group()
    connections = await _connect(target, group, count)
    members = [ClassicMember(connection, group, topic) for connection in connections]
    synced: Counter[int] = Counter()
    balanced = asyncio.Event()

    async def live(member: ClassicMember) -> None:
        while True:
            await member.join()
            synced[member.generation] += 1
            if synced[member.generation] == count:
                balanced.set()
            await _pause()
            while await member.heartbeat():
                await _pause()

    with target.measured() as spent:
        await _until(balanced, [live(member) for member in members])
    _close(connections)
    last = await connect(target.bootstrap)
    await classic_member.leave(last, group, [member.member_id for member in members])
    return {"seconds": spent.seconds, "broker CPU s": spent.broker_cpu_seconds}


async def _consumer(target: Target, topic: str, count: int) -> dict[str, float]:
    group = new_group()
    connections = await _connect(target, group, count)
    members = [ConsumerMember(connection, group, topic) for connection in connections]
    share = len(target.partitions(topic)) // count
    served: set[str] = set()
    balanced = asyncio.Event()

    async def live(member: ConsumerMember) -> None:
        await member.join()
        while True:
            if len(member.owned) == share:
                served.add(member.member_id)
            else:
                served.discard(member.member_id)
            if len(served) == count:
                balanced.set()
            await _pause()
            await member.heartbeat()

    with target.measured() as spent:
        await _until(balanced, [live(member) for member in members])
    _close(connections)
    last = await connect(target.bootstrap)
    for member in members:
        await member.leave(last)
    return {"seconds": spent.seconds, "broker CPU s": spent.broker_cpu_seconds}


async def _connect(target: Target, group: str, count: int) -> list[Connection]:
    connections = [await connect(target.bootstrap) for _ in range(count)]
    await await_coordinators(connections[0], [group])
    return connections


async def _pause() -> None:
    await asyncio.sleep(HEARTBEAT_MS / 1000)


async def _until(reached: asyncio.Event, lives: Sequence[Coroutine[None, None, None]]) -> None:
    """Run the members until the event; a member ends only by failing."""
    tasks = [asyncio.ensure_future(life) for life in lives]
    waiting = asyncio.ensure_future(reached.wait())
    done, _ = await asyncio.wait(
        [waiting, *tasks], timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for task in [waiting, *tasks]:
        task.cancel()
    for ended in done:
        await ended
    if not done:
        raise TimeoutError(f"the group was not balanced within {PATIENCE_SECONDS} s")


def _close(connections: Sequence[Connection]) -> None:
    for connection in connections:
        connection.close()
